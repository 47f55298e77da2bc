//! Facts of the machine that speak for or against a measurement.
//!
//! In: `/proc` and `/sys`, the cores of a run. Out: plain values for [`crate::metric::health`]. Never: changes a setting, or fails: what
//! the system does not tell is absent.

use std::fs;
use std::path::{Path, PathBuf};

use crate::clock::Nanos;
use crate::metric::health::{MachineFacts, Throttled};

use super::cores::Cores;

/// The machine as it was when the run began.
pub(super) struct Machine {
    facts: MachineFacts,
    /// The group's `cpu.stat`, and what it said.
    stops: Option<(PathBuf, Throttled)>,
    /// (worker's core, time that the host had taken from it).
    stolen: Vec<(usize, Nanos)>,
}

/// Unit of `/proc/stat`: the kernel shows it in hundredths of a second, whatever its own tick.
pub(super) const STAT_TICK: Nanos = Nanos::from_millis(10);

impl Machine {
    /// Reads what does not change in a run.
    pub(super) fn read(cores: &Cores) -> Machine {
        let workers: Vec<usize> = cores.workers.iter().flatten().copied().collect();
        let others: Vec<usize> = cores
            .server
            .iter()
            .copied()
            .chain(cores.recorder())
            .collect();
        let mut facts = MachineFacts {
            governors: workers.iter().filter_map(|&core| governor(core)).collect(),
            shared_cores: shared(&workers, &cores.server),
            ..MachineFacts::default()
        };
        for &core in &workers {
            let siblings = cpu_text(core, "topology/thread_siblings_list");
            let siblings = siblings.map_or_else(Vec::new, |text| core_list(&text));
            facts
                .busy_siblings
                .extend(busy(core, &siblings, &workers, &others));
        }
        let mut stops = None;
        let lines = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        for folder in control_groups(&lines) {
            let quota = |name| fs::read_to_string(folder.join(name)).ok();
            let unified = quota("cpu.max").and_then(|text| quota_cpus(&text));
            let older = || {
                let [quota, period] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(quota);
                quota_cpus(&format!("{} {}", quota?.trim(), period?))
            };
            facts.quota_cpus = facts.quota_cpus.or(unified).or_else(older);
            let stat = folder.join("cpu.stat");
            stops = stops.or_else(|| read_stops(&stat).map(|before| (stat, before)));
        }
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let stolen = workers
            .iter()
            .map(|&core| Some((core, stolen(&stat, core)?)));
        let stolen = stolen.flatten().collect();
        Machine {
            facts,
            stops,
            stolen,
        }
    }

    /// What it was, and what happened since.
    pub(super) fn facts(self) -> MachineFacts {
        let since = self.stops.and_then(|(stat, before)| {
            read_stops(&stat).map(|after| Throttled {
                periods: after.periods.saturating_sub(before.periods),
                time: after.time - before.time,
            })
        });
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let taken = self.stolen.into_iter().filter_map(|(core, before)| {
            let taken = stolen(&stat, core)? - before;
            (taken > Nanos(0)).then_some((core, taken))
        });
        MachineFacts {
            throttled: since,
            stolen: taken.collect(),
            ..self.facts
        }
    }
}

/// Cores of workers that another worker or the built-in server is bound to.
fn shared(workers: &[usize], server: &[usize]) -> Vec<(usize, &'static str)> {
    let mut shared = Vec::new();
    for (index, &core) in workers.iter().enumerate() {
        if workers[..index].contains(&core) {
            shared.push((core, "another worker"));
        } else if server.contains(&core) {
            shared.push((core, "the built-in server"));
        }
    }
    shared
}

/// (core, sibling) for each sibling that a thread of ours is bound to; two workers are named once.
fn busy(
    core: usize,
    siblings: &[usize],
    workers: &[usize],
    others: &[usize],
) -> Vec<(usize, usize)> {
    let counts = |sibling: usize| {
        let worker = workers.contains(&sibling);
        sibling != core && (worker || others.contains(&sibling)) && !(worker && sibling < core)
    };
    let busy = siblings.iter().filter(|&&sibling| counts(sibling));
    busy.map(|&sibling| (core, sibling)).collect()
}

fn governor(core: usize) -> Option<(usize, String)> {
    let governor = cpu_text(core, "cpufreq/scaling_governor")?;
    let governor = governor.trim();
    (governor != "performance").then(|| (core, governor.to_owned()))
}

fn cpu_text(core: usize, file: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/{file}")).ok()
}

/// `0,4-6` as numbers; what is no number is left out.
pub(super) fn core_list(text: &str) -> Vec<usize> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .collect()
}

/// Folders of this process's group, from the lines of `/proc/self/cgroup`: `0::/path` in the unified hierarchy (v2), and
/// `N:cpu,cpuacct:/path` in that of the CPU controller (v1). A container may see its own group as the root.
fn control_groups(lines: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut folders = Vec::new();
    for line in lines.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            folders.extend([root.join(path), root.to_owned()]);
        } else if controllers.split(',').any(|name| name == "cpu") {
            let mount = root.join(controllers);
            folders.extend([mount.join(path), root.join("cpu").join(path), mount]);
        }
    }
    folders
}

/// `200000 100000` is two CPUs; `max 100000` and `-1 100000` are no quota.
fn quota_cpus(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0 && quota > 0.0 && quota.is_finite()).then(|| quota / period)
}

fn read_stops(stat: &Path) -> Option<Throttled> {
    stops(&fs::read_to_string(stat).ok()?)
}

/// `nr_throttled`, and `throttled_usec` (v2) or `throttled_time` in ns (v1).
fn stops(text: &str) -> Option<Throttled> {
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
    };
    let microseconds = value("throttled_usec").map(|us: u64| us.saturating_mul(1_000));
    Some(Throttled {
        periods: value("nr_throttled")?,
        time: Nanos(
            microseconds
                .or_else(|| value("throttled_time"))
                .unwrap_or(0),
        ),
    })
}

/// The eighth number in the core's line: time in which the core had work, and the host of this virtual machine ran something else.
fn stolen(stat: &str, core: usize) -> Option<Nanos> {
    core_row(stat, core)?.get(7).copied()
}

/// The numbers of a core's line in `/proc/stat`, up to the first that is none.
pub(super) fn core_row(stat: &str, core: usize) -> Option<Vec<Nanos>> {
    let name = format!("cpu{core}");
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let (_, numbers) = lines.find(|(first, _)| *first == name)?;
    let ticks = numbers
        .split_ascii_whitespace()
        .map_while(|word| word.parse().ok());
    Some(
        ticks
            .map(|ticks: u64| Nanos(ticks.saturating_mul(STAT_TICK.0)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(core_list("0,4-6\n"), [0, 4, 5, 6]);
        assert_eq!(core_list("3\n"), [3]);
        assert_eq!(core_list("x,2,5-"), [2]);
    }

    #[test]
    fn quotas_and_stops_are_read() {
        assert_eq!(quota_cpus("150000 100000\n"), Some(1.5));
        for none in ["max 100000\n", "-1 100000", "1 0", ""] {
            assert_eq!(quota_cpus(none), None, "{none}");
        }
        let unified = "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 70\n";
        let older = "nr_periods 9\nnr_throttled 4\nthrottled_time 70000\n";
        for text in [unified, older] {
            let expected = Throttled {
                periods: 4,
                time: Nanos(70_000),
            };
            assert_eq!(stops(text), Some(expected), "{text}");
        }
        assert_eq!(stops("usage_usec 5\n"), None);
    }

    #[test]
    fn stolen_time_is_that_of_the_core() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu10 1 2 3 4 5 6 7\n";
        assert_eq!(stolen(stat, 1), Some(Nanos::from_millis(80)));
        assert_eq!(stolen(stat, 10), None, "an old kernel's line");
        assert_eq!(stolen(stat, 2), None);
    }

    #[test]
    fn groups_of_both_hierarchies_are_found() {
        let paths = |lines: &str| -> Vec<String> {
            let folders = control_groups(lines);
            folders.iter().map(|f| f.display().to_string()).collect()
        };
        assert_eq!(paths("0::/a/b"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup"]);
        assert_eq!(
            paths("4:memory:/m\n3:cpu,cpuacct:/c:d\nnonsense"),
            [
                "/sys/fs/cgroup/cpu,cpuacct/c:d",
                "/sys/fs/cgroup/cpu/c:d",
                "/sys/fs/cgroup/cpu,cpuacct"
            ]
        );
    }

    #[test]
    fn shared_cores_and_siblings_are_named_once() {
        assert_eq!(
            shared(&[1, 2, 1], &[2]),
            [(2, "the built-in server"), (1, "another worker")]
        );
        assert!(shared(&[1, 2], &[3]).is_empty());
        let workers = [0, 4];
        assert_eq!(busy(0, &[0, 4], &workers, &[]), [(0, 4)]);
        assert!(busy(4, &[0, 4], &workers, &[]).is_empty(), "named before");
        assert_eq!(busy(4, &[4, 3], &workers, &[3]), [(4, 3)]);
        assert!(busy(0, &[0, 8], &workers, &[3]).is_empty());
    }
}
