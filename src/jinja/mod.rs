//! Jinja templates that a stranger wrote, carried out within bounds.
//!
//! In: a template, the environment it is to run in, values. Out: text, or the sentence of what it asked too much of. Never: a template
//! that runs without end, or one that fills the memory; a file; another template.
//!
//! The engine counts steps ([`Environment::set_fuel`]) and no bytes, and in sixty steps a text that is put behind itself has more of
//! them than there is memory. So a template is compiled, and before each step that may make something of unknown size a step is put that
//! looks at what it is given and takes that from a budget (`guard.rs`, `budget.rs`). What the compiler would work out by itself while it
//! compiles is looked at before (`folded.rs`).

mod budget;
mod folded;
mod growth;
mod guard;

use std::collections::BTreeMap;
use std::fmt;

use minijinja::machinery::{
    CodeGenerator, Instructions, Vm, WhitespaceConfig, make_string_output, parse,
};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use self_cell::self_cell;

pub use budget::BUILT_BYTES_MAX;

/// Greatest template taken, in bytes; the greatest known ones have some 30 kB.
pub const TEMPLATE_BYTES_MAX: usize = 1 << 20;

/// Steps that one rendering may take, guards included. A long conversation takes some thousand a message; a template that asks for
/// more is taken for one that does not end.
pub const STEPS_MAX: u64 = 15_000_000;

/// How deep macros may call each other.
const RECURSION_MAX: usize = 200;

/// A template ready to be carried out.
///
/// ```
/// use tokenring::jinja::Jinja;
/// let hello = Jinja::new(minijinja::Environment::new(), "hello", "Hello {{ name }}!".to_owned(), false).unwrap();
/// assert_eq!(hello.render(minijinja::context! { name => "you" }).unwrap(), "Hello you!");
/// let grows = "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}";
/// let grows = Jinja::new(minijinja::Environment::new(), "grows", grows.to_owned(), false).unwrap();
/// assert!(grows.render(minijinja::context! {}).unwrap_err().to_string().contains("builds more than 512 MiB"));
/// ```
pub struct Jinja {
    environment: Environment<'static>,
    program: Program,
}

self_cell!(
    struct Program {
        owner: Source,
        #[covariant]
        dependent: Steps,
    }
);

/// What the steps point into.
struct Source {
    name: &'static str,
    text: String,
}

/// The compiled template: its steps, and those of its blocks.
struct Steps<'source> {
    root: Instructions<'source>,
    blocks: BTreeMap<&'source str, Instructions<'source>>,
}

impl Jinja {
    /// Compiles `text` for `environment`. `name` is what errors call it; `lines`: a tag takes the end of its line and the white space
    /// before it along, as `transformers` has it.
    ///
    /// # Errors
    ///
    /// What is wrong with the template, with its line.
    pub fn new(
        mut environment: Environment<'static>,
        name: &'static str,
        text: String,
        lines: bool,
    ) -> Result<Jinja, Error> {
        if text.len() > TEMPLATE_BYTES_MAX {
            let sentence = format!(
                "it has {} bytes; at most {TEMPLATE_BYTES_MAX} are taken",
                text.len()
            );
            return Err(Error::new(ErrorKind::InvalidOperation, sentence));
        }
        // Else an error keeps the template's variables, and prints them without an end where they hold each other.
        environment.set_debug(false);
        environment.set_fuel(Some(STEPS_MAX));
        environment.set_recursion_limit(RECURSION_MAX);
        guard::register(&mut environment);
        let whitespace = WhitespaceConfig {
            lstrip_blocks: lines,
            trim_blocks: lines,
            ..WhitespaceConfig::default()
        };
        let program = Program::try_new(Source { name, text }, |source| {
            let tree = parse(&source.text, source.name, Default::default(), whitespace)?;
            folded::check(&tree)?;
            let mut generator = CodeGenerator::new(source.name, &source.text);
            generator.compile_stmt(&tree);
            let (root, blocks) = generator.finish();
            let guarded = |(name, steps)| (name, guard::guarded(&steps));
            Ok::<_, Error>(Steps {
                root: guard::guarded(&root),
                blocks: blocks.into_iter().map(guarded).collect(),
            })
        })?;
        Ok(Jinja {
            environment,
            program,
        })
    }

    /// What it makes of the values of `given`.
    ///
    /// # Errors
    ///
    /// What it objects to, or what it asked too much of: steps ([`ErrorKind::OutOfFuel`]), or bytes.
    pub fn render(&self, given: Value) -> Result<String, Error> {
        let mut text = String::new();
        let steps = self.program.borrow_dependent();
        budget::fresh(|| {
            let mut out = make_string_output(&mut text);
            Vm::new(&self.environment)
                .eval(
                    &steps.root,
                    given,
                    &steps.blocks,
                    &mut out,
                    AutoEscape::None,
                )
                .map(|_| ())
        })?;
        Ok(text)
    }
}

impl fmt::Debug for Jinja {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jinja")
            .field("text", &self.program.borrow_owner().text)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
