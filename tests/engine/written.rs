//! The file of records, as a run writes it.
//!
//! In: the records of a run. Out: a panic that names the run, where a line is missing, twice, or no JSON. Never: a look at numbers, whose tests
//! are elsewhere.

use serde_json::Value;
use tokenring::config::PhasePlan;
use tokenring::metric::{Context, request};
use tokenring::record::Record;
use tokenring::report::{PhaseTag, RecordsWriter};

/// Writes `records` and reads them again: one whole line each, in their order.
pub(crate) fn check_file(records: &[Record], phases: &[PhasePlan], context: &Context, place: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("profile_export.jsonl");
    let mut file = RecordsWriter::create(&path, true).expect("a file");
    let tags: Vec<PhaseTag> = phases.iter().enumerate().map(tag).collect();
    for record in records {
        let values = request::values(record, context);
        let tag = &tags[usize::from(record.id.phase)];
        file.write(record, &values, tag).expect("it is written");
    }
    file.finish().expect("it is written");
    let text = std::fs::read_to_string(&path).expect("it is UTF-8");
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "{place}: a part of a line"
    );
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("a line is JSON");
        let of = |name: &str| line["metadata"][name].as_u64();
        let failed = line.get("error").is_some();
        (
            of("phase_index"),
            of("session_num"),
            of("turn_index"),
            failed,
        )
    });
    let lines: Vec<_> = lines.collect();
    let expected = records.iter().map(|record| {
        let id = &record.id;
        let (phase, turn) = (u64::from(id.phase), u64::from(id.turn));
        (
            Some(phase),
            Some(id.number),
            Some(turn),
            !record.is_success(),
        )
    });
    assert_eq!(lines, expected.collect::<Vec<_>>(), "{place}");
}

fn tag((index, phase): (usize, &PhasePlan)) -> PhaseTag {
    PhaseTag {
        name: phase.kind.name().to_owned(),
        kind: phase.kind,
        index,
        profiling_index: None,
    }
}
