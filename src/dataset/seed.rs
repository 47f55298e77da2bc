//! Named streams of random numbers.
//!
//! In: the run's seed and a name. Out: generators that do not disturb one another. Never: asks the system for randomness.

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use sha2::{Digest, Sha256};

/// The seed of the stream called `name`: the first 8 bytes, big-endian, of SHA-256 of `<root>:<name>`.
///
/// ```
/// use tokenring::dataset::child_seed;
/// assert_eq!(child_seed(42, "dataset.prompt.length"), child_seed(42, "dataset.prompt.length"));
/// assert_ne!(child_seed(42, "dataset.prompt.length"), child_seed(43, "dataset.prompt.length"));
/// ```
#[must_use]
pub fn child_seed(root: u64, name: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(format!("{root}:{name}")).into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Generator number `index` of the stream called `name`. Each index has numbers of its own, so that work can be dealt to
/// threads by index without changing its outcome.
#[must_use]
pub fn stream(root: u64, name: &str, index: u64) -> ChaCha12Rng {
    numbered(child_seed(root, name), index)
}

/// Generator number `index` of the stream whose seed is `child`; does not allocate.
pub(super) fn numbered(child: u64, index: u64) -> ChaCha12Rng {
    let mut generator = ChaCha12Rng::seed_from_u64(child);
    generator.set_stream(index);
    generator
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn child_seeds_are_the_head_of_sha_256() {
        // printf '42:dataset.prompt.length' | sha256sum
        let cases = [
            (42, "dataset.prompt.length", 0x6861a9f87b085097),
            (0, "", 0xba768b331fd86cec),
        ];
        for (root, name, right) in cases {
            assert_eq!(child_seed(root, name), right, "{root}:{name}");
        }
    }

    #[test]
    fn streams_differ_by_index_and_repeat() {
        let draw = |index| stream(7, "name", index).next_u64();
        assert_eq!(draw(0), draw(0));
        assert_ne!(draw(0), draw(1));
    }
}
