//! Where records of TLS end.
//!
//! In: ciphertext as it was read, cut anywhere. Out: how much of it may be decrypted at a stretch. Never: a record's content.

/// What lies before each record's payload: its type, a version, its length (RFC 8446 section 5.1).
const HEADER_BYTES: usize = 5;

/// Decrypting a record takes so many bytes' time more than its length tells: 0.2 us where 16 KiB take 4 us.
const RECORD_BYTES: usize = 1 << 10;

/// What is decrypted at a stretch: the longest record of TLS 1.3 (RFC 8446 section 5.2), or short ones that take as long together.
pub(super) const STRETCH: usize = (1 << 14) + 256 + RECORD_BYTES;

/// A place in a stream of records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Records {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that have come; below `HEADER_BYTES` unless the payload is under way.
    header_bytes: usize,
    /// Bytes of the payload that are still to come.
    payload_left: usize,
}

impl Records {
    /// How many bytes of `data` come next, and what decrypting the records that end in them costs: as many as cost no more than `room`,
    /// and with `first` at least one record whatever it costs.
    pub(super) fn take(&mut self, data: &[u8], room: usize, first: bool) -> (usize, usize) {
        let (mut taken, mut cost) = (0, 0);
        while taken < data.len() {
            let mut ahead = *self;
            let (bytes, more) = ahead.step(&data[taken..]);
            let must = first && cost == 0;
            if cost + more > room && !must {
                break;
            }
            *self = ahead;
            taken += bytes;
            cost += more;
        }
        (taken, cost)
    }

    /// Goes to the end of the record under way, or of `data`: how many bytes that is, and what the record costs if it ends.
    fn step(&mut self, data: &[u8]) -> (usize, usize) {
        let mut taken = 0;
        if self.header_bytes < HEADER_BYTES {
            taken = data.len().min(HEADER_BYTES - self.header_bytes);
            self.header[self.header_bytes..self.header_bytes + taken]
                .copy_from_slice(&data[..taken]);
            self.header_bytes += taken;
            if self.header_bytes < HEADER_BYTES {
                return (taken, 0);
            }
            self.payload_left = self.payload_bytes();
        }
        let payload = (data.len() - taken).min(self.payload_left);
        self.payload_left -= payload;
        if self.payload_left > 0 {
            return (taken + payload, 0);
        }
        self.header_bytes = 0;
        (taken + payload, self.payload_bytes() + RECORD_BYTES)
    }

    fn payload_bytes(&self) -> usize {
        usize::from(u16::from_be_bytes([self.header[3], self.header[4]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of records with payloads of these lengths, and where each ends.
    fn stream(payloads: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for &payload in payloads {
            let length = u16::try_from(payload).expect("a record's length");
            bytes.extend_from_slice(&[23, 3, 3]);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.resize(bytes.len() + payload, 0xff);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    /// Walks `bytes` in reads of `read` bytes, each in as many stretches as it takes; what ended in each stretch.
    fn stretches(bytes: &[u8], ends: &[usize], read: usize) -> Vec<Vec<usize>> {
        let (mut records, mut at, mut spent, mut all) = (Records::default(), 0, 0, vec![vec![]]);
        for piece in bytes.chunks(read) {
            let mut from = 0;
            while from < piece.len() {
                let (taken, cost) =
                    records.take(&piece[from..], STRETCH.saturating_sub(spent), spent == 0);
                let ended = ends.iter().enumerate();
                let ended = ended.filter(|(_, end)| (at + 1..=at + taken).contains(*end));
                all.last_mut()
                    .expect("there is one")
                    .extend(ended.map(|(n, _)| n));
                (from, at, spent) = (from + taken, at + taken, spent + cost);
                if from < piece.len() {
                    spent = 0;
                    all.push(Vec::new());
                }
            }
        }
        all
    }

    #[test]
    fn no_stretch_holds_more_than_one_long_record_or_its_worth_in_short_ones() {
        let long = 16_384 + 17;
        let tables: [&[usize]; 6] = [
            &[long; 12],
            &[200; 300],
            &[1; 2_000],
            &[0, 0, long, 0, 5, 300, long, long, 17],
            &[8_000, 9_000, long, 1, 8_000],
            // More than TLS allows: the length field allows it all the same.
            &[65_535, 1, 65_535],
        ];
        for payloads in tables {
            let (bytes, ends) = stream(payloads);
            for read in [1, 3, 5, 7, 4_096, 8_128, 16_406, 65_536, usize::MAX] {
                let all = stretches(&bytes, &ends, read);
                let ended: Vec<usize> = all.iter().flatten().copied().collect();
                let every: Vec<usize> = (0..payloads.len()).collect();
                assert_eq!(ended, every, "each record ends once: {payloads:?}, {read}");
                for stretch in all {
                    let cost: usize = stretch.iter().map(|&n| payloads[n] + RECORD_BYTES).sum();
                    assert!(
                        cost <= STRETCH || stretch.len() == 1,
                        "{stretch:?} at a stretch in reads of {read}"
                    );
                }
            }
        }
    }
}
