//! API dialects, as far as flags depend on them.
//!
//! In: nothing. Out: [`EndpointKind`], the key of a dialect everywhere, and a row of facts for each. Never: a body or a reply; those
//! are in a file for each dialect in `endpoint`, which has one line in the table there.

/// What a dialect can do and what it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialectFacts {
    /// The name as in `--endpoint-type`.
    pub name: &'static str,
    /// What is added to a base URL when `--custom-endpoint` gives nothing.
    pub path: &'static str,
    /// The same for streamed replies, where that is another path.
    pub streaming_path: Option<&'static str>,
    /// Title of the console's tables.
    pub title: &'static str,
    /// Can stream replies. Where it cannot, `--streaming` is taken for not given, as by AIPerf.
    pub streams: bool,
    /// Replies are made of tokens.
    pub produces_tokens: bool,
    /// Input is counted in tokens.
    pub counts_input: bool,
    /// Has a place for a system message and for a first user message of context.
    pub system_slot: bool,
    /// Carries earlier turns and what was replied to them.
    pub history: bool,
    /// How a stream says that it is whole.
    pub ending: Ending,
    /// Each event of a stream can carry the usage so far, where that is asked for.
    pub usage_by_chunk: bool,
    /// The built-in server speaks it.
    pub built_in: bool,
    /// Ranks passages by a query.
    pub ranks: bool,
    /// Takes pictures.
    pub images: bool,
    /// Takes an id beside a picture, or in its place.
    pub image_ids: bool,
    /// Takes sounds.
    pub audio: bool,
    /// Takes films.
    pub video: bool,
    /// `Content-Type` of its bodies. A dialect of forms has a boundary in it that its bodies use.
    pub content_type: &'static str,
}

/// How a stream says that it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By `[DONE]`. Some servers leave it out, so a stream without it is whole if it gave a reason for its end.
    DoneMark,
    /// By an event that the dialect marks as the last. A stream without it was cut, and its request has failed.
    Event,
    /// By the end of its connection's framing alone.
    Connection,
    /// As [`Ending::Event`], but not every server sends it: a stream without it is no failure.
    OptionalEvent,
}

/// Between the parts of a form. Drawn once: a base64 text cannot hold it, and no sound will.
macro_rules! form_boundary {
    () => {
        "tokenring-7b1c5f0e9d3a4286b4f7"
    };
}

/// Between the parts of a form, as the content type of the dialects of forms announces it.
pub const FORM_BOUNDARY: &str = form_boundary!();

/// An API that streams text for one text: what most rows differ from in little.
const TEXT: DialectFacts = DialectFacts {
    name: "",
    path: "",
    streaming_path: None,
    title: "LLM Metrics",
    streams: true,
    produces_tokens: true,
    counts_input: true,
    system_slot: false,
    history: false,
    ending: Ending::Connection,
    usage_by_chunk: false,
    built_in: false,
    ranks: false,
    images: false,
    image_ids: false,
    audio: false,
    video: false,
    content_type: "application/json",
};

/// An API whose whole answer is numbers.
const NUMBERS: DialectFacts = DialectFacts {
    streams: false,
    produces_tokens: false,
    ..TEXT
};

/// Makes the enum and its facts out of one row for each dialect.
macro_rules! dialects {
    ($($(#[$doc:meta])* $kind:ident $facts:tt)*) => {
        /// API dialects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EndpointKind {
            $($(#[$doc])* $kind,)*
        }

        impl EndpointKind {
            /// All of them.
            pub const ALL: &[EndpointKind] = &[$(EndpointKind::$kind),*];

            /// What it can do and what it is called.
            #[must_use]
            pub const fn facts(self) -> &'static DialectFacts {
                match self {
                    $(EndpointKind::$kind => const { &DialectFacts $facts },)*
                }
            }
        }
    };
}

dialects! {
    /// `/v1/chat/completions`.
    Chat {
        name: "chat",
        ending: Ending::DoneMark,
        usage_by_chunk: true,
        built_in: true,
        path: "/v1/chat/completions",
        system_slot: true,
        history: true,
        images: true,
        image_ids: true,
        audio: true,
        video: true,
        ..TEXT
    }
    /// `/v1/completions`.
    Completions {
        name: "completions",
        ending: Ending::DoneMark,
        usage_by_chunk: true,
        built_in: true,
        path: "/v1/completions",
        ..TEXT
    }
    /// `/v1/responses`.
    Responses {
        name: "responses",
        ending: Ending::Event,
        built_in: true,
        path: "/v1/responses",
        system_slot: true,
        history: true,
        images: true,
        audio: true,
        ..TEXT
    }
    /// Anthropic's `/v1/messages`.
    Messages {
        name: "messages",
        ending: Ending::Event,
        built_in: true,
        path: "/v1/messages",
        system_slot: true,
        history: true,
        images: true,
        ..TEXT
    }
    /// `/generate` of text-generation-inference.
    HuggingfaceGenerate {
        name: "huggingface_generate",
        ending: Ending::OptionalEvent,
        built_in: true,
        path: "/generate",
        streaming_path: Some("/generate_stream"),
        ..TEXT
    }
    /// `/rag/api/prompt`.
    SolidoRag {
        name: "solido_rag",
        built_in: true,
        path: "/rag/api/prompt",
        title: "SOLIDO RAG Metrics",
        ..TEXT
    }
    /// `/v1/embeddings`.
    Embeddings {
        name: "embeddings",
        built_in: true,
        path: "/v1/embeddings",
        title: "Embeddings Metrics",
        ..NUMBERS
    }
    /// `/v1/embeddings` of NIM, which takes pictures beside texts.
    NimEmbeddings {
        name: "nim_embeddings",
        built_in: true,
        path: "/v1/embeddings",
        title: "NIM Embeddings Metrics",
        images: true,
        ..NUMBERS
    }
    /// `/v1/embeddings` for a server that embeds chat messages.
    ChatEmbeddings {
        name: "chat_embeddings",
        built_in: true,
        path: "/v1/embeddings",
        title: "Embeddings Metrics",
        system_slot: true,
        images: true,
        ..NUMBERS
    }
    /// `/v1/ranking` of NIM.
    NimRankings {
        name: "nim_rankings",
        built_in: true,
        path: "/v1/ranking",
        title: "Rankings Metrics",
        ranks: true,
        ..NUMBERS
    }
    /// Cohere's `/v2/rerank`.
    CohereRankings {
        name: "cohere_rankings",
        built_in: true,
        path: "/v2/rerank",
        title: "Ranking Metrics",
        ranks: true,
        ..NUMBERS
    }
    /// `/rerank` of text-embeddings-inference.
    HfTeiRankings {
        name: "hf_tei_rankings",
        built_in: true,
        path: "/rerank",
        title: "Ranking Metrics",
        ranks: true,
        ..NUMBERS
    }
    /// `/v1/infer` of NIM.
    ImageRetrieval {
        name: "image_retrieval",
        built_in: true,
        path: "/v1/infer",
        title: "Image Retrieval Metrics",
        counts_input: false,
        images: true,
        ..NUMBERS
    }
    /// `/v1/audio/transcriptions`.
    AudioTranscription {
        name: "audio_transcription",
        built_in: true,
        path: "/v1/audio/transcriptions",
        title: "Audio Transcription Metrics",
        counts_input: false,
        audio: true,
        content_type: concat!("multipart/form-data; boundary=", form_boundary!()),
        ..NUMBERS
    }
    /// Bodies that a dataset gives whole, at the URL as it is.
    Raw {
        name: "raw",
        images: true,
        audio: true,
        video: true,
        ..TEXT
    }
    /// Bodies that the user writes as a template, at the URL as it is.
    Template {
        name: "template",
        images: true,
        audio: true,
        video: true,
        ..TEXT
    }
}

impl EndpointKind {
    /// The dialect that `--endpoint-type` calls by this name.
    #[must_use]
    pub fn named(name: &str) -> Option<EndpointKind> {
        let mut all = EndpointKind::ALL.iter().copied();
        all.find(|kind| kind.facts().name == name)
    }

    /// The name as in `--endpoint-type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// What is added to a base URL when `--custom-endpoint` gives nothing.
    #[must_use]
    pub fn default_path(self, streaming: bool) -> &'static str {
        let facts = self.facts();
        let other = facts.streaming_path.filter(|_| streaming);
        other.unwrap_or(facts.path)
    }

    /// Names of those that `can`, for a sentence: `chat` or `chat, responses or messages`.
    #[must_use]
    pub fn names_of(can: impl Fn(&DialectFacts) -> bool) -> String {
        let mut names: Vec<&str> = EndpointKind::ALL
            .iter()
            .map(|kind| kind.facts())
            .filter(|facts| can(facts))
            .map(|facts| facts.name)
            .collect();
        let last = names.pop().unwrap_or_default();
        if names.is_empty() {
            return last.to_owned();
        }
        format!("{} or {last}", names.join(", "))
    }
}
