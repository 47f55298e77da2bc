//! Guards between the steps of a template.
//!
//! In: compiled steps. Out: the same with guards before those that may build something large, or may look at it. Never: another
//! result than the unguarded steps have, but for lists where the engine has lazy sequences.

use std::collections::BTreeSet;

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, Value};

use super::budget::{spend, spend_deep, spend_shallow};
use super::growth;

/// Guards of one value, which they hand on. No template can write their names.
const DEEP: &str = "<deep>";
const SHALLOW: &str = "<shallow>";
/// Takes as many bytes as a number says.
const BYTES: &str = "<bytes>";
/// What a step made: counted, and a list if it was lazy, since sequences that are lazy upon each other are walked by recursion.
const MADE: &str = "<made>";
/// Guards of several values, which they hand on as a list.
const ALL_DEEP: &str = "<all deep>";
const ALL_SHALLOW: &str = "<all shallow>";
const TIMES: &str = "<times>";
/// As `ALL_DEEP`, of a step of [`growth::GROWING`], whose name comes behind.
const GROWS: &str = "<grows>";

/// Filters that look at no more than the first level of a value, and hand on what it has.
const QUICK_FILTERS: &[&str] = &["length", "count", "default", "d", "first"];

/// Tests that ask for the kind of a value.
const QUICK_TESTS: &[&str] = &[
    "defined",
    "undefined",
    "none",
    "string",
    "mapping",
    "number",
    "boolean",
    "sequence",
    "iterable",
    "true",
    "false",
    "integer",
    "float",
];

/// Raw text shorter than this is bounded by the steps alone.
const RAW_BYTES_FREE: usize = 32;

/// Makes the guards known to `environment`.
pub(super) fn register(environment: &mut Environment<'_>) {
    environment.add_filter(DEEP, |value: Value| spend_deep(&value).map(|_| value));
    environment.add_filter(SHALLOW, |value: Value| {
        spend_shallow(&value).map(|()| value)
    });
    environment.add_filter(BYTES, |count: u64| spend(count).map(|()| count));
    environment.add_filter(MADE, made);
    environment.add_function(ALL_DEEP, |values: Rest<Value>| {
        values
            .iter()
            .try_for_each(|value| spend_deep(value).map(|_| ()))?;
        Ok::<_, Error>(unpacked(values.0))
    });
    environment.add_function(ALL_SHALLOW, |values: Rest<Value>| {
        values.iter().try_for_each(spend_shallow)?;
        Ok::<_, Error>(unpacked(values.0))
    });
    environment.add_function(TIMES, |one: Value, other: Value| {
        growth::times(&one, &other)?;
        Ok::<_, Error>(unpacked(vec![one, other]))
    });
    environment.add_function(GROWS, |mut values: Rest<Value>| {
        let name = values.pop().unwrap_or_default();
        growth::applied(name.as_str().unwrap_or_default(), &values)?;
        Ok::<_, Error>(unpacked(values.0))
    });
}

/// As `UnpackList` wants values that are to stand as they stood: it puts the first one on top.
fn unpacked(mut values: Vec<Value>) -> Value {
    values.reverse();
    Value::from(values)
}

fn made(value: Value) -> Result<Value, Error> {
    spend_deep(&value)?;
    if value.kind() != ValueKind::Iterable {
        return Ok(value);
    }
    let items = value.try_iter()?;
    Ok(Value::from(items.collect::<Vec<Value>>()))
}

/// The same steps with guards between them.
pub(super) fn guarded<'s>(steps: &Instructions<'s>) -> Instructions<'s> {
    let count = (0..).take_while(|&at| steps.get(at).is_some()).count();
    let all: Vec<&Instruction<'s>> = (0..).map_while(|at| steps.get(at)).collect();
    let targets: BTreeSet<u32> = all.iter().filter_map(|step| target(step)).collect();
    let mut out: Vec<(Instruction<'s>, u32)> = Vec::with_capacity(count * 2);
    // Where each step now begins, its guards included.
    let mut begins = Vec::with_capacity(count + 1);
    for (at, step) in (0_u32..).zip(&all) {
        begins.push(out.len());
        let joined = targets.contains(&at);
        let before = at.checked_sub(1).filter(|_| !joined);
        let scalar = before.is_some_and(|before| is_scalar(all[before as usize]));
        let guards = guards(step, scalar);
        out.extend(guards.before.into_iter().map(|guard| (guard, at)));
        out.push(((*step).clone(), at));
        if guards.after {
            out.push((Instruction::ApplyFilter(MADE, Some(1), !0), at));
        }
    }
    begins.push(out.len());
    let mut guarded = Instructions::new(steps.name(), steps.source());
    for (mut step, from) in out {
        if let Some(place) = target_mut(&mut step) {
            *place = u32::try_from(begins[*place as usize]).unwrap_or(u32::MAX);
        }
        let line = steps
            .get_line(from)
            .and_then(|line| u16::try_from(line).ok());
        match (steps.get_span(from), line) {
            (Some(span), _) => guarded.add_with_span(step, span),
            (None, Some(line)) => guarded.add_with_line(step, line),
            (None, None) => guarded.add(step),
        };
    }
    guarded
}

/// What stands around a step.
#[derive(Default)]
struct Guards<'s> {
    before: Vec<Instruction<'s>>,
    /// What it makes is looked at.
    after: bool,
}

/// `scalar`: the value on top is a constant that is no list.
fn guards<'s>(step: &Instruction<'s>, scalar: bool) -> Guards<'s> {
    use Instruction as Step;
    let one = |guard| vec![Step::ApplyFilter(guard, Some(1), !0)];
    let (before, after) = match step {
        Step::EmitRaw(text) if text.len() >= RAW_BYTES_FREE => {
            let mut before = vec![Step::LoadConst(Value::from(text.len()))];
            before.extend(one(BYTES));
            before.push(Step::DiscardTop);
            (before, false)
        }
        Step::Emit if !scalar => (one(DEEP), false),
        Step::PushLoop(_) => (one(SHALLOW), false),
        Step::SetAttr(_) => (
            [vec![Step::Swap], one(DEEP), vec![Step::Swap]].concat(),
            false,
        ),
        Step::BuildMap(pairs) | Step::BuildKwargs(pairs) => (several(ALL_DEEP, pairs * 2), false),
        Step::BuildList(Some(items)) => (several(ALL_DEEP, *items), false),
        Step::UnpackLists(lists) | Step::MergeKwargs(lists) => (several(ALL_DEEP, *lists), false),
        Step::UnpackList(_) => (one(SHALLOW), false),
        Step::Slice => (several(ALL_SHALLOW, 4), true),
        Step::GetItem if !scalar => (several(ALL_SHALLOW, 2), false),
        Step::Add => (several(ALL_SHALLOW, 2), true),
        Step::Mul => (several(TIMES, 2), true),
        Step::StringConcat | Step::In => (several(ALL_DEEP, 2), false),
        Step::Eq
        | Step::Ne
        | Step::Gt
        | Step::Gte
        | Step::Lt
        | Step::Lte
        | Step::CompareAndPreserve(_)
            if !scalar =>
        {
            (several(ALL_DEEP, 2), false)
        }
        Step::ApplyFilter(name, _, _) if QUICK_FILTERS.contains(name) => (one(SHALLOW), false),
        Step::ApplyFilter(name, count, _) | Step::CallMethod(name, count) => {
            (applied(name, *count), true)
        }
        Step::PerformTest(name, ..) if QUICK_TESTS.contains(name) => (Vec::new(), false),
        Step::PerformTest(_, count, _) => (counted(ALL_DEEP, *count), false),
        Step::CallFunction(_, count) | Step::CallObject(count) => (counted(ALL_DEEP, *count), true),
        _ => (Vec::new(), false),
    };
    Guards { before, after }
}

/// A guard of the `count` values on top, which stand there again behind it.
fn several<'s>(guard: &'s str, count: usize) -> Vec<Instruction<'s>> {
    match u16::try_from(count) {
        Ok(0) | Err(_) => Vec::new(),
        Ok(taken) => vec![
            Instruction::CallFunction(guard, Some(taken)),
            Instruction::UnpackList(count),
        ],
    }
}

/// The same for a step that may not say how many it takes: then its values came out of lists, which were looked at.
fn counted<'s>(guard: &'s str, count: Option<u16>) -> Vec<Instruction<'s>> {
    count.map_or_else(Vec::new, |count| several(guard, usize::from(count)))
}

/// Before a filter or a method.
fn applied<'s>(name: &'s str, count: Option<u16>) -> Vec<Instruction<'s>> {
    match count {
        Some(count) if growth::GROWING.contains(&name) => vec![
            Instruction::LoadConst(Value::from(name)),
            Instruction::CallFunction(GROWS, Some(count + 1)),
            Instruction::UnpackList(usize::from(count)),
        ],
        count => counted(ALL_DEEP, count),
    }
}

fn is_scalar(step: &Instruction<'_>) -> bool {
    let kinds = [
        ValueKind::String,
        ValueKind::Number,
        ValueKind::Bool,
        ValueKind::None,
    ];
    match step {
        Instruction::LoadConst(value) => kinds.contains(&value.kind()),
        _ => false,
    }
}

/// Where a step may go on.
fn target(step: &Instruction<'_>) -> Option<u32> {
    target_mut(&mut step.clone()).map(|place| *place)
}

fn target_mut<'a>(step: &'a mut Instruction<'_>) -> Option<&'a mut u32> {
    match step {
        Instruction::Iterate(place)
        | Instruction::Jump(place)
        | Instruction::JumpIfFalse(place)
        | Instruction::JumpIfFalseOrPop(place)
        | Instruction::JumpIfTrueOrPop(place)
        | Instruction::BuildMacro(_, place, _) => Some(place),
        _ => None,
    }
}
