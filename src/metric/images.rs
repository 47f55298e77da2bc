//! Metrics of requests that show pictures.
//!
//! In: a record and its latency. Out: their number, how many a second, and how long each took. Never: a value of a request without pictures.

use super::request::index;
use crate::clock::Nanos;
use crate::record::Record;

/// Pictures over the request's latency, and the latency over the pictures; AIPerf's formulas.
pub(super) fn images(record: &Record, latency: Option<Nanos>, one: &mut impl FnMut(usize, f64)) {
    if record.image_count == 0 {
        return;
    }
    let count = f64::from(record.image_count);
    one(index!("num_images"), count);
    if let Some(latency) = latency.filter(|latency| latency.0 > 0) {
        one(index!("image_throughput"), count / latency.seconds());
        one(index!("image_latency"), latency.millis() / count);
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry::METRICS;
    use super::*;

    fn values(image_count: u32, latency: Option<Nanos>) -> Vec<(&'static str, f64)> {
        let record = Record {
            image_count,
            ..Record::default()
        };
        let mut values = Vec::new();
        images(&record, latency, &mut |index, value| {
            values.push((METRICS[index].tag, value));
        });
        values
    }

    #[test]
    fn pictures_share_the_latency() {
        let latency = Nanos::from_millis(500);
        let all = [
            ("num_images", 4.0),
            ("image_throughput", 8.0),
            ("image_latency", 125.0),
        ];
        assert_eq!(values(4, Some(latency)), all);
        assert_eq!(values(4, None), all[..1]);
        assert_eq!(values(4, Some(Nanos(0))), all[..1]);
        assert_eq!(values(0, Some(latency)), []);
    }
}
