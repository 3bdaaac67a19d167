//! `gpu-specs.csv`: what each GPU model can do.

use std::sync::Arc;

use stoker_core::base::ids::GpuModel;
use stoker_core::market::offer::{ComputeCapability, GpuNames, GpuSpec};
use stoker_core::market::sharing::MigProfile;

use crate::cell::{Cell, Parser};
use crate::fault::{Fault, Problem, shown};
use crate::sheet::{At, Sheet, Table, cell, line};

line! {
    /// A line of `gpu-specs.csv`.
    Line {
        gpu_model, memory_gib, bandwidth_gb_s, fp16_dense_tflops, fp8_dense_tflops, compute_capability,
        mig_max_instances, mig_profiles, nvlink_gb_s, product_label,
        nvml_mib, gke_accelerators, karpenter_aws_name, aws_reported_mib,
        memory_source, performance_source, mig_source, label_source, note,
    }
}

/// Parses every line of `gpu-specs.csv`.
pub(crate) fn parse(table: &Arc<Table>, bytes: &[u8], faults: &mut Vec<Fault>) -> Vec<(At, GpuSpec)> {
    let sheet = Sheet::read(table, bytes, Line::COLUMNS, faults);
    let mut specs = Vec::new();
    for (at, line) in sheet.lines::<Line<'_>>(faults) {
        if let Some(spec) = spec(&mut Parser::new(at, faults), &line) {
            specs.push((at.clone(), spec));
        }
    }
    specs
}

fn spec(parser: &mut Parser<'_>, line: &Line<'_>) -> Option<GpuSpec> {
    const GB_S: &str = "a whole number of GB/s, e.g. 900";
    const MIB: &str = "a whole number of MiB";
    const TFLOPS: &str = "a decimal number of TFLOPS, e.g. 18.7";
    let model = parser.name::<GpuModel>(cell!(line.gpu_model));
    parser.filled(cell!(line.memory_gib), "write the GiB of one GPU");
    let memory = parser.memory(cell!(line.memory_gib));
    parser.filled(cell!(line.memory_source), "name the source of the memory size");
    let bandwidth_gb_s = parser.whole(cell!(line.bandwidth_gb_s), GB_S);
    let fp16_gflops = parser.decimal(cell!(line.fp16_dense_tflops), 3, TFLOPS);
    let fp8_gflops = parser.decimal(cell!(line.fp8_dense_tflops), 3, TFLOPS);
    let has_performance = bandwidth_gb_s.is_some() || fp16_gflops.is_some() || fp8_gflops.is_some();
    if has_performance {
        parser.filled(cell!(line.performance_source), "name the source of bandwidth and compute");
    }
    let nvlink_gb_s = parser.whole(cell!(line.nvlink_gb_s), GB_S);
    let instances: Option<u32> = parser.whole(cell!(line.mig_max_instances), "a whole number of MIG instances, or 0");
    if instances == Some(0) && !line.mig_profiles.is_empty() {
        parser.fault(cell!(line.mig_profiles), Problem::ProfilesWithoutMig(shown(line.mig_profiles)));
    }
    for cell in [cell!(line.mig_source), cell!(line.label_source), cell!(line.note)] {
        parser.text(cell);
    }
    let mig_profiles = profiles(parser, cell!(line.mig_profiles));
    let compute_capability = capability(parser, cell!(line.compute_capability));
    let names = GpuNames {
        product: parser.text(cell!(line.product_label)).map(str::to_owned),
        nvml_mib: parser.whole(cell!(line.nvml_mib), MIB),
        aws: parser.text(cell!(line.karpenter_aws_name)).map(str::to_owned),
        aws_mib: parser.whole(cell!(line.aws_reported_mib), MIB),
        gke: parser.text(cell!(line.gke_accelerators)).unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
    };
    if !parser.is_clean() {
        return None;
    }
    Some(GpuSpec {
        model: model?,
        memory: memory?,
        bandwidth_gb_s,
        fp16_gflops,
        fp8_gflops,
        compute_capability,
        mig_max_instances: instances,
        mig_profiles,
        nvlink_gb_s,
        names,
    })
}

fn profiles(parser: &mut Parser<'_>, cell: Cell<'_>) -> Vec<MigProfile> {
    let mut profiles = Vec::new();
    for text in parser.text(cell).unwrap_or_default().split_whitespace() {
        match text.parse() {
            Ok(profile) => profiles.push(profile),
            Err(_) => parser
                .fault(cell, Problem::Number { value: shown(text), wanted: "MIG profiles with spaces between, e.g. 1g.10gb" }),
        }
    }
    profiles
}

fn capability(parser: &mut Parser<'_>, cell: Cell<'_>) -> Option<ComputeCapability> {
    let text = parser.text(cell)?;
    let read = text.parse();
    if read.is_err() {
        parser.fault(cell, Problem::Number { value: shown(text), wanted: "a compute capability, e.g. 8.9" });
    }
    read.ok()
}
