//! Markers against prefix caches, put into bodies as they are sent.
//!
//! In: a body with room for a marker, and whose it is. Out: a copy with the marker. Never: a change of length where each session has its own.

use std::sync::Arc;

use memchr::memmem;

use crate::config::{CacheBust, PhaseKind, Plan};
use crate::dataset::{MARKER_GAP, MARKER_ROOM, WARMUP_MARKER, session_marker};
use crate::endpoint::{Api, Marker};
use crate::record::RequestId;

/// What marks the bodies of a run.
pub(super) struct Marks {
    target: CacheBust,
    api: Api,
    /// Tells this run from others; not of the seed, since a server's cache outlives a run.
    run: u64,
    /// Whether each phase is a warmup.
    warmup: Vec<bool>,
    room: memmem::Finder<'static>,
}

impl Marks {
    /// `None` when no marker is asked for.
    pub(super) fn of(plan: &Plan, api: &Api) -> Option<Marks> {
        let kinds = plan.phases.iter().map(|phase| phase.kind);
        Some(Marks {
            target: plan.dataset.prompts.cache_bust?,
            api: api.clone(),
            run: rand::random(),
            warmup: kinds.map(|kind| kind == PhaseKind::Warmup).collect(),
            room: memmem::Finder::new(MARKER_ROOM),
        })
    }

    /// The body of request `id` with its marker; `None` where it has none.
    pub(super) fn marked(&self, id: &RequestId, body: &[u8]) -> Option<Arc<[u8]>> {
        if !self.target.is_per_session() {
            let warmup = self.warmup.get(usize::from(id.phase)) == Some(&true);
            let marker = Marker {
                text: WARMUP_MARKER,
                gap: MARKER_GAP,
                system: self.target == CacheBust::WarmupSystem,
            };
            return warmup.then(|| self.api.marked(body, &marker).into());
        }
        let marker = session_marker(self.run, id.phase, id.session, id.conversation);
        let mut copy: Arc<[u8]> = body.into();
        // Just made, so it is nobody else's.
        if let Some(bytes) = Arc::get_mut(&mut copy) {
            for place in self.room.find_iter(body) {
                bytes[place..place + marker.len()].copy_from_slice(&marker);
            }
        }
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EndpointKind, EndpointPlan};

    fn marks(target: CacheBust) -> Marks {
        Marks {
            target,
            api: Api::new(&EndpointPlan::plain(EndpointKind::Chat)).unwrap(),
            run: 5,
            warmup: vec![true, false],
            room: memmem::Finder::new(MARKER_ROOM),
        }
    }

    fn marked(marks: &Marks, phase: u8, session: u64, body: &str) -> Option<String> {
        let id = RequestId {
            phase,
            session,
            ..RequestId::default()
        };
        let body = marks.marked(&id, body.as_bytes())?;
        Some(String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn a_session_has_one_marker_in_all_its_bodies() {
        let marks = marks(CacheBust::FirstTurnPrefix);
        let body = format!("{{\"a\":\"{MARKER_ROOM}\\n\\nx\",\"b\":\"{MARKER_ROOM}\"}}");
        let first = marked(&marks, 1, 4, &body).unwrap();
        assert_eq!(first.len(), body.len());
        let (head, rest) = first.split_at(6);
        let (marker, rest) = rest.split_at(MARKER_ROOM.len());
        assert_eq!(head, "{\"a\":\"");
        assert_eq!(rest, format!("\\n\\nx\",\"b\":\"{marker}\"}}"));
        let digits = marker.strip_prefix("[rid:").unwrap();
        let digits = digits.strip_suffix(']').unwrap();
        assert!(digits.len() == 12 && digits.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_eq!(marked(&marks, 1, 4, &body).unwrap(), first);
        let others = [
            marked(&marks, 0, 4, &body).unwrap(),
            marked(&marks, 1, 5, &body).unwrap(),
        ];
        assert!(!others.contains(&first));
    }

    #[test]
    fn a_warmup_is_marked_and_the_run_is_not() {
        let with =
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}],"n":1}"#;
        let without =
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"u"}]}],"n":1}"#;
        let cases = [
            (
                CacheBust::WarmupSystem,
                with,
                r#"{"messages":[{"role":"system","content":"[warmup]\n\ns"},{"role":"user","content":"u"}],"n":1}"#,
            ),
            (
                CacheBust::WarmupSystem,
                without,
                r#"{"messages":[{"role":"system","content":"[warmup]"},{"role":"user","content":[{"type":"text","text":"u"}]}],"n":1}"#,
            ),
            (
                CacheBust::WarmupFirstTurn,
                with,
                r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"[warmup]\n\nu"}],"n":1}"#,
            ),
            (
                CacheBust::WarmupFirstTurn,
                without,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"[warmup]\n\nu"}]}],"n":1}"#,
            ),
        ];
        for (target, body, wanted) in cases {
            let marks = marks(target);
            assert_eq!(marked(&marks, 0, 4, body).as_deref(), Some(wanted));
            assert_eq!(marked(&marks, 1, 4, body), None);
        }
    }
}
