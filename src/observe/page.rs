//! From live values to samples: one list a row of the table, filled by the handles when a page is asked for, handed to the
//! prometheus crate, which sorts and writes them. Knows no metric by name.

use super::metrics::{Kind, PREFIX, Row, TABLE};
use super::shelf::Series;
use prometheus::core::{Collector, Desc, Metric as _};
use prometheus::{Histogram, HistogramOpts, proto};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Our series as the prometheus crate's registry sees them.
pub(super) struct Book {
    descs: Vec<Desc>,
    series: Arc<Series>,
}

impl Book {
    /// Fails for a row that Prometheus would not take.
    pub(super) fn new(series: Arc<Series>) -> prometheus::Result<Self> {
        let descs = TABLE.iter().map(|metric| {
            let labels = metric.labels.iter().map(|label| label.to_string()).collect();
            Desc::new(metric.full_name(), metric.help.to_owned(), labels, HashMap::new())
        });
        Ok(Book { descs: descs.collect::<Result<_, _>>()?, series })
    }
}

impl Collector for Book {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut page = Page { samples: TABLE.iter().map(|_| Vec::new()).collect() };
        self.series.collect(&mut page);
        page.into_families()
    }
}

/// Samples by row.
pub(super) struct Page {
    samples: Vec<Vec<proto::Metric>>,
}

impl Page {
    pub(super) fn counter(&mut self, row: Row, labels: &[&str], value: &AtomicU64) {
        let mut counter = proto::Counter::default();
        counter.set_value(value.load(Relaxed) as f64);
        self.add(row, labels).set_counter(counter);
    }

    pub(super) fn gauge(&mut self, row: Row, labels: &[&str], value: f64) {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        self.add(row, labels).set_gauge(gauge);
    }

    pub(super) fn histogram(&mut self, row: Row, labels: &[&str], value: &Histogram) {
        let histogram = value.metric().get_histogram().clone();
        self.add(row, labels).set_histogram(histogram);
    }

    fn add(&mut self, row: Row, labels: &[&str]) -> &mut proto::Metric {
        let names = TABLE[row as usize].labels;
        debug_assert_eq!(names.len(), labels.len(), "{row:?}");
        let pairs = names.iter().zip(labels).map(|(name, value)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name(name.to_string());
            pair.set_value(value.to_string());
            pair
        });
        let samples = &mut self.samples[row as usize];
        samples.push(proto::Metric::from_label(pairs.collect()));
        let last = samples.len() - 1;
        &mut samples[last]
    }

    fn into_families(self) -> Vec<proto::MetricFamily> {
        let families = TABLE.iter().zip(self.samples).map(|(metric, samples)| {
            let mut family = proto::MetricFamily::default();
            family.set_name(metric.full_name());
            family.set_help(metric.help.to_owned());
            family.set_field_type(match metric.kind {
                Kind::Counter => proto::MetricType::COUNTER,
                Kind::Gauge => proto::MetricType::GAUGE,
                Kind::Histogram => proto::MetricType::HISTOGRAM,
            });
            family.set_metric(samples);
            family
        });
        families.collect()
    }
}

/// The histogram of one series of `row`; its name and labels are written by [`Page`].
pub(super) fn histogram(row: Row) -> Histogram {
    let metric = &TABLE[row as usize];
    let opts = HistogramOpts::new(format!("{PREFIX}{}", metric.name), metric.help).buckets(metric.buckets().to_vec());
    Histogram::with_opts(opts).expect("the edges of the table ascend")
}
