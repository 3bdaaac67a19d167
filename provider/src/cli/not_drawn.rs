//! Why a picture could not be drawn, for every command that draws.

use plotters::prelude::DrawingAreaErrorKind;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotDrawn(pub(super) String);

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for NotDrawn {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}
