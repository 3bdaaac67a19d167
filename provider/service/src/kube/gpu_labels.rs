//! Labels by which GPU models are chosen elsewhere, and what their values mean.

use stoker_core::base::ids::GpuModel;
use stoker_core::base::units::MiB;
use stoker_core::market::price::PriceBook;
use stoker_core::market::sharing::PRODUCT_LABEL;

/// The labels. Templates bear those whose value is certain (`stoker_core::market::labels`).
pub(crate) const GPU_LABELS: [&str; 6] = [
    PRODUCT_LABEL,
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.azure.com/sku-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "accelerator",
];

/// The parts of a name in lower case: `nvidia`, `a100`, `80gb`.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_ascii_lowercase();
    lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The GPU model that a longer name has in it: the L4 of `NVIDIA-L4`, the A100 of `nvidia-tesla-a100`.
pub(crate) fn model_in<'v>(name: &str, models: impl IntoIterator<Item = &'v str>) -> Option<&'v str> {
    let name = words(name);
    let has = |model: &&str| {
        let model = words(model);
        !model.is_empty() && name.windows(model.len()).any(|part| part == model)
    };
    models.into_iter().filter(has).max_by_key(|model| model.len())
}

/// The GPU model of the tables that a label's value means, and where the model comes in several sizes the one that it names.
pub(crate) fn model_of<'b>(book: &'b PriceBook, value: &str) -> Option<(&'b GpuModel, Option<MiB>)> {
    let is_called = |label: &str| value == label || value.strip_prefix(label).is_some_and(|rest| rest.starts_with('-'));
    let specs = || book.gpu_models().flat_map(|model| book.gpu(model));
    // The longest: a label goes on with -SHARED or -MIG-1g.10gb where GPUs are shared.
    let called = specs().filter_map(|spec| Some((spec.names.product.as_deref().filter(|label| is_called(label))?, spec)));
    let called = called.max_by_key(|(label, _)| label.len()).map(|(_, spec)| &spec.model);
    let named = || model_in(value, book.gpu_models().map(GpuModel::as_str));
    let model = called.or_else(|| book.gpu_models().find(|model| named() == Some(model.as_str())))?;
    let sizes = book.gpu(model);
    let of_size = |word: String| word.strip_suffix("gb").and_then(|gib| gib.parse().ok()).map(MiB::from_gib);
    let named = words(value).into_iter().filter_map(of_size).find(|size| sizes.iter().any(|spec| spec.memory == *size));
    Some((model, named.filter(|_| sizes.len() > 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_all_sorts_name_a_model_of_the_tables() {
        let book = stoker_pricing::embedded().unwrap();
        for (value, model, size) in [
            ("NVIDIA-L4", "L4", None),
            ("NVIDIA-L40S-SHARED", "L40S", None),
            ("Tesla-T4", "T4", None),
            ("NVIDIA-A100-SXM4-80GB", "A100", Some(80)),
            ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100", Some(40)),
            ("NVIDIA-A100-80GB-PCIe", "A100PCIe", None),
            ("nvidia-a100-80gb", "A100", Some(80)),
            ("nvidia-tesla-a100", "A100", None),
            ("nvidia-h100-mega-80gb", "H100", None),
            ("a10g", "A10G", None),
        ] {
            let (found, memory) = model_of(&book, value).unwrap();
            assert_eq!((found.as_str(), memory), (model, size.map(MiB::from_gib)), "{value}");
        }
        assert!(model_of(&book, "true").is_none());
    }
}
