//! Which file does which dialect.
//!
//! In: the plan. Out: its dialect. Never: a fact about one; those are in `config/dialect.rs`.

use std::sync::Arc;

use super::chat::Chat;
use super::completions::Completions;
use super::embeddings::Embeddings;
use super::found::Answer;
use super::huggingface::HuggingfaceGenerate;
use super::messages::Messages;
use super::rankings::Rankings;
use super::raw::Raw;
use super::responses::Responses;
use super::retrieval::ImageRetrieval;
use super::solido::SolidoRag;
use super::template::Template;
use super::transcription::AudioTranscription;
use super::{ApiError, Dialect};
use crate::config::{EndpointKind, EndpointPlan};

/// The plan's dialect. One that takes settings of its own says here what is wrong with them.
pub(super) fn dialect(plan: &EndpointPlan) -> Result<Arc<dyn Dialect>, ApiError> {
    Ok(match plan.kind {
        EndpointKind::Chat => Arc::new(Chat),
        EndpointKind::Completions => Arc::new(Completions),
        EndpointKind::Responses => Arc::new(Responses),
        EndpointKind::Messages => Arc::new(Messages),
        EndpointKind::HuggingfaceGenerate => Arc::new(HuggingfaceGenerate),
        EndpointKind::SolidoRag => Arc::new(SolidoRag),
        EndpointKind::Embeddings => Arc::new(Embeddings::Texts),
        EndpointKind::NimEmbeddings => Arc::new(Embeddings::Pairs),
        EndpointKind::ChatEmbeddings => Arc::new(Embeddings::Messages),
        EndpointKind::NimRankings => Arc::new(Rankings::Nim),
        EndpointKind::CohereRankings => Arc::new(Rankings::Cohere),
        EndpointKind::HfTeiRankings => Arc::new(Rankings::Tei),
        EndpointKind::ImageRetrieval => Arc::new(ImageRetrieval),
        EndpointKind::AudioTranscription => Arc::new(AudioTranscription),
        EndpointKind::Raw => Arc::new(Raw(Answer::new(&plan.extra_inputs)?)),
        EndpointKind::Template => Arc::new(Template::new(plan)?),
    })
}
