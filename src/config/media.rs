//! Flags about pictures and sounds become a [`MediaPlan`].
//!
//! In: settings, and the names of the files in a folder of pictures. Out: what is made, as a plan. Never: reads a picture.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::dialect::EndpointKind;
use super::error::Problems;
use super::lex::Settings;
use super::plan::Length;

/// Pictures and sounds that go with made-up prompts. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MediaPlan {
    /// Pictures of each turn.
    pub images: Option<ImagePlan>,
    /// Sounds of each turn.
    pub sounds: Option<SoundPlan>,
}

/// Pictures.
#[derive(Clone, Debug, PartialEq)]
pub struct ImagePlan {
    /// Pixels; a length drawn is at least 1.
    pub width: Length,
    /// Pixels; a length drawn is at least 1.
    pub height: Length,
    /// Pictures in each turn, at least 1.
    pub per_turn: usize,
    /// How they are encoded.
    pub format: ImageFormat,
    /// What they show.
    pub source: ImageSource,
}

/// `--image-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// Without loss.
    Png,
    /// With loss, at quality 75.
    Jpeg,
    /// One of the two, drawn for each picture.
    Random,
}

/// `--image-source`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// Each channel of each pixel drawn by itself.
    Noise,
    /// Pictures of a folder, resized.
    Files {
        /// They, by name; at least one.
        paths: Vec<PathBuf>,
        /// Which one comes next.
        order: ImageOrder,
    },
}

/// `--image-source-sampling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageOrder {
    /// Any of them, each time anew.
    Random,
    /// All of them in random order, then all in another.
    Shuffled,
    /// By name, over and over.
    Sequential,
}

/// Sounds: Gaussian noise.
#[derive(Clone, Debug, PartialEq)]
pub struct SoundPlan {
    /// Seconds; a length drawn is at least 0.01.
    pub seconds: Length,
    /// Sounds in each turn, at least 1.
    pub per_turn: usize,
    /// Bits of a sample (8, 16, 24 or 32), of which one is drawn for each sound.
    pub depths: Vec<u8>,
    /// Samples per second and channel, of which one is drawn for each sound.
    pub rates_hz: Vec<u32>,
    /// 1 or 2.
    pub channels: u8,
    /// How they are encoded.
    pub format: SoundFormat,
}

/// `--audio-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoundFormat {
    /// A RIFF file of PCM samples.
    Wav,
    /// MPEG layer III, at 128 kbit/s from 32 kHz on and at 64 below. The depth of samples means nothing to it.
    Mp3,
}

/// Sample rates that MPEG layer III has.
const MP3_RATES_HZ: &[u32] = &[
    8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000,
];

/// Endings of the files in a folder of pictures that are looked at.
const PICTURE_ENDINGS: &[&str] = &["png", "jpg", "jpeg"];

/// Sample rates above this are in hertz, the others in kilohertz.
const KILOHERTZ_MOST: f64 = 96.0;

/// Bounds of a sample rate, in hertz.
const RATES_HZ: std::ops::RangeInclusive<f64> = 1_000.0..=384_000.0;

/// Flags that need pictures to be asked for.
const IMAGE_FLAGS: &[&str] = &[
    "--image-width-stddev",
    "--image-height-stddev",
    "--image-batch-size",
    "--image-format",
    "--image-source",
    "--image-source-sampling",
];

/// Flags that need sounds to be asked for.
const AUDIO_FLAGS: &[&str] = &[
    "--audio-length-stddev",
    "--audio-batch-size",
    "--audio-format",
    "--audio-depths",
    "--audio-sample-rates",
    "--audio-num-channels",
];

/// Reads and checks.
pub(super) fn media(settings: &Settings, kind: EndpointKind, problems: &mut Problems) -> MediaPlan {
    let plan = MediaPlan {
        images: images(settings, problems),
        sounds: sounds(settings, problems),
    };
    let facts = kind.facts();
    if plan.images.is_some() && !facts.images {
        problems.push(format!(
            "--image-width-mean needs --endpoint-type {}: {} has no place for pictures",
            EndpointKind::names_of(|facts| facts.images),
            facts.name
        ));
    }
    if plan.sounds.is_some() && !facts.audio {
        problems.push(format!(
            "--audio-length-mean needs --endpoint-type {}: {} has no place for sounds",
            EndpointKind::names_of(|facts| facts.audio),
            facts.name
        ));
    }
    plan
}

fn images(settings: &Settings, problems: &mut Problems) -> Option<ImagePlan> {
    let (width, height) = ("--image-width-mean", "--image-height-mean");
    let above_0 = |flag: &str| settings.number(flag).is_some_and(|mean| mean > 0.0);
    match (above_0(width), above_0(height)) {
        (true, true) => {}
        (true, false) | (false, true) => {
            problems.push(format!(
                "{width} and {height} belong together; give both, above 0"
            ));
            return None;
        }
        (false, false) => {
            refuse_idle(
                settings,
                IMAGE_FLAGS,
                &format!("{width} and {height}"),
                problems,
            );
            return None;
        }
    }
    let per_turn = settings.size("--image-batch-size").unwrap_or(1);
    let plan = ImagePlan {
        width: length(settings, width, "--image-width-stddev"),
        height: length(settings, height, "--image-height-stddev"),
        per_turn,
        format: match settings.choice("--image-format") {
            Some("jpeg") => ImageFormat::Jpeg,
            Some("random") => ImageFormat::Random,
            _ => ImageFormat::Png,
        },
        source: image_source(settings, problems),
    };
    (per_turn > 0).then_some(plan)
}

fn image_source(settings: &Settings, problems: &mut Problems) -> ImageSource {
    let (flag, sampling) = ("--image-source", "--image-source-sampling");
    let order = match settings.choice(sampling) {
        Some("shuffle_cycle") => ImageOrder::Shuffled,
        Some("sequential_cycle") => ImageOrder::Sequential,
        _ => ImageOrder::Random,
    };
    match settings.text(flag).unwrap_or("noise") {
        "noise" => {
            if order != ImageOrder::Random {
                problems.push(format!(
                    "{sampling} orders the pictures of a folder, and noise has none; give a folder with {flag}"
                ));
            }
            ImageSource::Noise
        }
        "assets" => {
            problems.push(format!(
                "{flag} assets means pictures that AIPerf ships and tokenring does not; give noise or a folder of pictures"
            ));
            ImageSource::Noise
        }
        folder => match pictures_in(Path::new(folder)) {
            Ok(paths) => ImageSource::Files { paths, order },
            Err(sentence) => {
                problems.push(format!("{flag} {folder:?} {sentence}"));
                ImageSource::Noise
            }
        },
    }
}

/// The pictures of a folder, by name.
fn pictures_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unread = |error: std::io::Error| {
        format!("cannot be read: {error}; give noise or a folder of pictures")
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let known = |ending: &str| PICTURE_ENDINGS.contains(&&*ending.to_ascii_lowercase());
        if ending.is_some_and(known) && path.is_file() {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err("holds no .png, .jpg or .jpeg file; give noise or a folder that does".into());
    }
    paths.sort();
    Ok(paths)
}

fn sounds(settings: &Settings, problems: &mut Problems) -> Option<SoundPlan> {
    let flag = "--audio-length-mean";
    if !settings.number(flag).is_some_and(|mean| mean > 0.0) {
        refuse_idle(settings, AUDIO_FLAGS, flag, problems);
        return None;
    }
    let per_turn = settings.size("--audio-batch-size").unwrap_or(1);
    let plan = SoundPlan {
        seconds: length(settings, flag, "--audio-length-stddev"),
        per_turn,
        depths: listed(
            settings,
            "--audio-depths",
            &[16],
            "8, 16, 24 or 32",
            problems,
            |text| text.parse().ok().filter(|d| [8, 16, 24, 32].contains(d)),
        ),
        rates_hz: listed(
            settings,
            "--audio-sample-rates",
            &[16_000],
            "a sample rate in kHz (up to 96) or Hz",
            problems,
            rate_hz,
        ),
        channels: settings
            .integer("--audio-num-channels")
            .and_then(|n| u8::try_from(n).ok())
            .unwrap_or(1),
        format: match settings.choice("--audio-format") {
            Some("mp3") => SoundFormat::Mp3,
            _ => SoundFormat::Wav,
        },
    };
    let odd = |rate: &&u32| plan.format == SoundFormat::Mp3 && !MP3_RATES_HZ.contains(rate);
    if let Some(rate) = plan.rates_hz.iter().find(odd) {
        problems.push(format!(
            "--audio-sample-rates {rate} Hz is none of mp3's, which are {MP3_RATES_HZ:?}; give one of them, or --audio-format wav"
        ));
    }
    (per_turn > 0).then_some(plan)
}

/// A sample rate in hertz, from kilohertz or hertz.
fn rate_hz(text: &str) -> Option<u32> {
    let number = text.parse::<f64>().ok()?;
    let hertz = if number > KILOHERTZ_MOST {
        number
    } else {
        number * 1_000.0
    };
    // In range by the filter.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = RATES_HZ.contains(&hertz).then(|| hertz.round() as u32);
    whole
}

fn listed<T: Copy>(
    settings: &Settings,
    flag: &str,
    default: &[T],
    wanted: &str,
    problems: &mut Problems,
    read: impl Fn(&str) -> Option<T>,
) -> Vec<T> {
    let mut values = Vec::new();
    for item in settings.list(flag) {
        match read(item) {
            Some(value) => values.push(value),
            None => problems.push(format!("{flag} {item:?} is not {wanted}")),
        }
    }
    if values.is_empty() {
        values.extend_from_slice(default);
    }
    values
}

fn length(settings: &Settings, mean: &str, stddev: &str) -> Length {
    Length {
        mean: settings.number(mean).unwrap_or(0.0),
        stddev: settings.number(stddev).unwrap_or(0.0),
    }
}

/// Flags that say how something is made that nobody asked for.
fn refuse_idle(settings: &Settings, flags: &[&str], needed: &str, problems: &mut Problems) {
    for flag in flags.iter().filter(|flag| settings.given(flag)) {
        if flag.ends_with("-batch-size") && settings.size(flag) == Some(0) {
            continue;
        }
        problems.push(format!(
            "{} needs {needed} above 0: without it there are none",
            settings.spelling(flag)
        ));
    }
}

/// Lists of numbers that were given, which the settings have as texts, and their places in the report's configuration of the dataset.
pub(super) fn sound_lists(settings: &Settings, plan: &MediaPlan) -> Vec<(&'static str, Value)> {
    let Some(sounds) = &plan.sounds else {
        return Vec::new();
    };
    let lists = [
        ("--audio-depths", "audio.depths", json!(sounds.depths)),
        (
            "--audio-sample-rates",
            "audio.sample_rates",
            json!(sounds.rates_hz),
        ),
    ];
    let given = lists.into_iter().filter(|(flag, ..)| settings.given(flag));
    given.map(|(_, path, values)| (path, values)).collect()
}
