//! In: plans and files. Out: what pictures and sounds must be, by decoding them. Never: the network.

use serde_json::{Value, json};

use super::*;
use crate::config::{
    ImageFormat, ImageOrder, ImagePlan, ImageSource, Length, SoundFormat, SoundPlan,
};
use base64::prelude::{BASE64_STANDARD, Engine};

fn images() -> ImagePlan {
    ImagePlan {
        width: Length::constant(64.0),
        height: Length::constant(48.0),
        per_turn: 1,
        format: ImageFormat::Png,
        source: ImageSource::Noise,
    }
}

fn sounds() -> SoundPlan {
    SoundPlan {
        seconds: Length::constant(0.5),
        per_turn: 1,
        depths: vec![16],
        rates_hz: vec![16_000],
        channels: 1,
        format: SoundFormat::Wav,
    }
}

/// The media of `turns` turns.
fn made(plan: &MediaPlan, turns: usize, seed: u64, threads: usize) -> Vec<Media> {
    let conversation = || Conversation {
        turns: vec![Turn::default()],
        ..Conversation::default()
    };
    let mut corpus = Corpus {
        conversations: std::iter::repeat_with(conversation).take(turns).collect(),
        ..Corpus::default()
    };
    add_with_threads(plan, &mut corpus, seed, threads).unwrap();
    let turns = corpus.conversations.into_iter().flat_map(|c| c.turns);
    turns.flat_map(|turn| turn.media).collect()
}

fn pictures(plan: ImagePlan, turns: usize) -> Vec<(String, ::image::RgbImage)> {
    let plan = MediaPlan {
        images: Some(plan),
        sounds: None,
    };
    let media = made(&plan, turns, 7, 2);
    media.iter().map(|media| decoded(&media.content)).collect()
}

/// Kind and pixels of a picture in a data URL.
fn decoded(url: &str) -> (String, ::image::RgbImage) {
    let (head, base64) = url.split_once(";base64,").unwrap();
    let kind = head.strip_prefix("data:image/").unwrap().to_owned();
    let bytes = BASE64_STANDARD.decode(base64).unwrap();
    let format = ::image::guess_format(&bytes).unwrap();
    assert_eq!(format.to_mime_type(), format!("image/{kind}"));
    let picture = ::image::load_from_memory(&bytes).unwrap().to_rgb8();
    (kind, picture)
}

/// Format, channels, rate, depth and samples of a sound, read by the chunks of its file.
fn waves(content: &str) -> (u16, u16, u32, u16, Vec<f64>) {
    let file = BASE64_STANDARD
        .decode(content.strip_prefix("wav,").unwrap())
        .unwrap();
    let short = |at: usize| u16::from_le_bytes(file[at..at + 2].try_into().unwrap());
    let long = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((&file[..4], &file[8..12]), (&b"RIFF"[..], &b"WAVE"[..]));
    assert_eq!(long(4) as usize, file.len() - 8);
    assert_eq!((&file[12..16], long(16)), (&b"fmt "[..], 16));
    let (format, channels, rate, depth) = (short(20), short(22), long(24), short(34));
    let frame = u32::from(depth / 8 * channels);
    assert_eq!((long(28), u32::from(short(32))), (rate * frame, frame));
    assert_eq!(
        (&file[36..40], long(40) as usize),
        (&b"data"[..], file.len() - 44)
    );
    let full = 2_f64.powi(i32::from(depth) - 1);
    let samples = file[44..].chunks(usize::from(depth / 8)).map(|bytes| {
        if depth == 8 {
            return (f64::from(bytes[0]) - 128.0) / full;
        }
        let mut whole = [0; 4];
        whole[4 - bytes.len()..].copy_from_slice(bytes);
        f64::from(i32::from_le_bytes(whole) >> (32 - depth)) / full
    });
    (format, channels, rate, depth, samples.collect())
}

#[test]
fn pictures_have_the_size_and_the_encoding_asked_for() {
    for (format, kinds) in [
        (ImageFormat::Png, &["png"][..]),
        (ImageFormat::Jpeg, &["jpeg"]),
        (ImageFormat::Random, &["jpeg", "png"]),
    ] {
        let mut plan = images();
        plan.format = format;
        let pictures = pictures(plan, 24);
        assert!(
            pictures.iter().all(|(_, p)| p.dimensions() == (64, 48)),
            "{format:?}"
        );
        let mut seen: Vec<&str> = pictures.iter().map(|(kind, _)| kind.as_str()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, kinds);
    }
}

#[test]
fn noise_is_even_and_sizes_follow_their_distribution() {
    let mut plan = images();
    plan.width.stddev = 20.0;
    let pictures = pictures(plan, 200);
    let widths: Vec<f64> = pictures.iter().map(|(_, p)| f64::from(p.width())).collect();
    let mean = widths.iter().sum::<f64>() / 200.0;
    // Five standard errors about the mean, and half a pixel of rounding up.
    assert!((mean - 64.5).abs() < 7.1, "{mean}");
    assert!(widths.iter().all(|width| *width >= 1.0));
    assert!(pictures.iter().all(|(_, p)| p.height() == 48));
    let pixels = pictures.iter().flat_map(|(_, picture)| picture.as_raw());
    let (count, sum) = pixels.fold((0_u32, 0_u64), |(count, sum), value| {
        (count + 1, sum + u64::from(*value))
    });
    let mean = sum as f64 / f64::from(count);
    assert!((mean - 127.5).abs() < 0.5, "{mean}");
}

#[test]
fn sounds_have_the_rate_depth_channels_and_length_asked_for() {
    for (depth, rate, channels, seconds) in [
        (8, 8_000, 1, 0.5),
        (16, 16_000, 2, 1.0),
        (24, 44_100, 1, 0.25),
        (32, 48_000, 2, 0.1),
        (16, 16_000, 1, 0.000_1),
    ] {
        let mut plan = sounds();
        plan.depths = vec![depth];
        plan.rates_hz = vec![rate];
        plan.channels = channels;
        plan.seconds = Length::constant(seconds);
        let plan = MediaPlan {
            images: None,
            sounds: Some(plan),
        };
        let media = made(&plan, 1, 7, 1);
        let (format, its_channels, its_rate, its_depth, samples) = waves(&media[0].content);
        assert_eq!(
            (format, its_channels, its_rate, its_depth),
            (1, u16::from(channels), rate, u16::from(depth))
        );
        let frames = samples.len() as f64 / f64::from(channels);
        let wanted = seconds.max(0.01) * f64::from(rate);
        assert!((frames - wanted).abs() <= 1.0, "{frames} {wanted}");
        let square = samples.iter().map(|s| s * s).sum::<f64>() / samples.len() as f64;
        // The clipped tails of a deviation of 0.3 weigh next to nothing; the bound is for some hundred samples.
        assert!((square.sqrt() - 0.3).abs() < 0.08, "{}", square.sqrt());
    }
}

#[test]
fn depths_and_rates_are_drawn_from_their_lists() {
    let mut plan = sounds();
    plan.depths = vec![8, 24];
    plan.rates_hz = vec![8_000, 22_050];
    plan.seconds.stddev = 0.1;
    let plan = MediaPlan {
        images: None,
        sounds: Some(plan),
    };
    let mut seen = std::collections::BTreeSet::new();
    for media in made(&plan, 40, 7, 2) {
        let (_, _, rate, depth, _) = waves(&media.content);
        seen.insert((rate, depth));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_for_any_number_of_threads() {
    let mut images = images();
    images.per_turn = 2;
    images.format = ImageFormat::Random;
    images.width.stddev = 9.0;
    let plan = MediaPlan {
        images: Some(images),
        sounds: Some(sounds()),
    };
    let one = made(&plan, 11, 7, 1);
    assert_eq!(one.len(), 33);
    for threads in [2, 3, 64] {
        assert!(made(&plan, 11, 7, threads) == one, "{threads}");
    }
    assert!(made(&plan, 11, 8, 1) != one);
    let differ: std::collections::HashSet<&str> = one.iter().map(|m| &*m.content).collect();
    assert_eq!(differ.len(), 33, "no picture or sound comes twice");
}

/// A folder of pictures of one colour each.
fn folder(colours: &[u8]) -> (tempfile::TempDir, Vec<std::path::PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = colours
        .iter()
        .map(|colour| {
            let path = folder.path().join(format!("{colour}.png"));
            let pixel = ::image::Rgb([*colour; 3]);
            ::image::RgbImage::from_pixel(10, 10, pixel)
                .save(&path)
                .unwrap();
            path
        })
        .collect();
    (folder, paths)
}

#[test]
fn pictures_of_a_folder_are_resized_and_taken_in_order() {
    let (_folder, paths) = folder(&[10, 20, 30, 40, 50]);
    for order in [
        ImageOrder::Sequential,
        ImageOrder::Shuffled,
        ImageOrder::Random,
    ] {
        let mut plan = images();
        plan.source = ImageSource::Files {
            paths: paths.clone(),
            order,
        };
        let made = pictures(plan, 50);
        assert!(made.iter().all(|(_, p)| p.dimensions() == (64, 48)));
        let colours: Vec<u8> = made.iter().map(|(_, p)| p.get_pixel(5, 5)[0]).collect();
        let cycles: Vec<&[u8]> = colours.chunks(5).collect();
        let rising = cycles.iter().all(|cycle| *cycle == [10, 20, 30, 40, 50]);
        let whole = cycles.iter().all(|cycle| {
            let mut sorted = cycle.to_vec();
            sorted.sort_unstable();
            sorted == [10, 20, 30, 40, 50]
        });
        let wanted = match order {
            ImageOrder::Sequential => (true, true),
            ImageOrder::Shuffled => (false, true),
            ImageOrder::Random => (false, false),
        };
        assert_eq!((rising, whole), wanted, "{order:?} {colours:?}");
    }
}

#[test]
fn a_file_that_is_no_picture_is_named() {
    let (folder, mut paths) = folder(&[10]);
    paths.push(folder.path().join("broken.png"));
    std::fs::write(&paths[1], b"\x89PNG broken").unwrap();
    let mut plan = images();
    plan.source = ImageSource::Files {
        paths,
        order: ImageOrder::Sequential,
    };
    let plan = MediaPlan {
        images: Some(plan),
        sounds: None,
    };
    let mut corpus = Corpus {
        conversations: vec![Conversation {
            turns: vec![Turn::default(), Turn::default()],
            ..Conversation::default()
        }],
        ..Corpus::default()
    };
    let error = add(&plan, &mut corpus, 7).unwrap_err().to_string();
    assert!(
        error.starts_with("--image-source: ") && error.contains("broken.png"),
        "{error}"
    );
}

fn taken(value: Value) -> Result<Vec<(MediaKind, String)>, String> {
    let Value::Object(mut fields) = value else {
        panic!("an object")
    };
    let media = take(&mut fields)?;
    assert!(!fields.keys().any(|key| key != "text"), "{fields:?}");
    let pairs = media.into_iter().map(|m| (m.kind, m.content.to_string()));
    Ok(pairs.collect())
}

#[test]
fn urls_and_encoded_media_stand_as_they_are() {
    use MediaKind::{Audio, Image, Video};
    let cases = [
        (
            json!({"image": "https://h/a.png"}),
            vec![(Image, "https://h/a.png")],
        ),
        (
            json!({"images": ["data:image/png;base64,AA==", {"name": "n", "contents": ["s3://b/k", "http://x"]}]}),
            vec![
                (Image, "data:image/png;base64,AA=="),
                (Image, "s3://b/k"),
                (Image, "http://x"),
            ],
        ),
        (
            json!({"audio": "wav,AAAA", "image": "http://h/1"}),
            vec![(Image, "http://h/1"), (Audio, "wav,AAAA")],
        ),
        (
            json!({"audios": ["mp3,AAAA", "https://h/a.wav"]}),
            vec![(Audio, "mp3,AAAA"), (Audio, "https://h/a.wav")],
        ),
        (
            json!({"video": "https://h/v.mp4"}),
            vec![(Video, "https://h/v.mp4")],
        ),
        (json!({"text": "a"}), vec![]),
    ];
    for (fields, wanted) in cases {
        let shown = fields.to_string();
        let got = taken(fields).unwrap();
        let got: Vec<(MediaKind, &str)> = got.iter().map(|(k, c)| (*k, c.as_str())).collect();
        assert_eq!(got, wanted, "{shown}");
    }
}

#[test]
fn files_are_read_and_encoded() {
    let (folder, paths) = folder(&[9]);
    let plan = MediaPlan {
        images: None,
        sounds: Some(sounds()),
    };
    let sound = made(&plan, 1, 7, 1).remove(0).content;
    let wave = folder.path().join("a sound");
    let bytes = BASE64_STANDARD.decode(&sound[4..]).unwrap();
    std::fs::write(&wave, bytes).unwrap();
    let mp3 = folder.path().join("b.mp3");
    std::fs::write(&mp3, [0xff, 0xfb, 0x90, 0x00]).unwrap();
    let got = taken(json!({
        "image": paths[0].to_str().unwrap(),
        "audios": [wave.to_str().unwrap(), mp3.to_str().unwrap()],
    }));
    let got = got.unwrap();
    let (kind, picture) = decoded(&got[0].1);
    assert_eq!((kind.as_str(), picture.dimensions()), ("png", (10, 10)));
    assert_eq!(got[1].1, *sound);
    assert_eq!(got[2].1, "mp3,//uQAA==");
}

#[test]
fn wrong_media_are_named_by_field() {
    let (folder, paths) = folder(&[9]);
    let text = folder.path().join("t.txt");
    std::fs::write(&text, "words").unwrap();
    let (text, picture) = (text.to_str().unwrap(), paths[0].to_str().unwrap());
    let cases = [
        (
            json!({"image": 3}),
            "field image: 3 is neither a string nor an object",
        ),
        (json!({"images": "a"}), "field images: \"a\" is not a list"),
        (
            json!({"image": "http://h", "images": []}),
            "fields image and images: give one of them, not both",
        ),
        (
            json!({"images": [{"contents": [1]}]}),
            "field images: 1 in contents is not a string",
        ),
        (
            json!({"images": [{}]}),
            "field images: an item has no list called contents",
        ),
        (
            json!({"image": ""}),
            "field image: an empty string names nothing",
        ),
        (
            json!({"image": "no/such.png"}),
            "field image: \"no/such.png\" is no URL, and as a file cannot be read",
        ),
        (json!({"image": text}), "is neither PNG, JPEG, GIF nor WebP"),
        (json!({"audio": picture}), "is neither WAV nor MP3"),
        (
            json!({"video": text}),
            "field video: a video goes out by its URL",
        ),
        (json!({"image": "wav,AAAA"}), "field image: \"wav,AAAA\""),
    ];
    for (fields, wanted) in cases {
        let shown = fields.to_string();
        let error = taken(fields).unwrap_err();
        assert!(error.contains(wanted), "{shown}: {error}");
    }
}

#[test]
fn pictures_are_counted_with_the_history_that_is_sent() {
    let turn = |count: usize| Turn {
        media: [MediaKind::Image, MediaKind::Audio]
            .into_iter()
            .flat_map(|kind| std::iter::repeat_n(kind, count))
            .map(|kind| Media::new(kind, "http://h"))
            .collect(),
        ..Turn::default()
    };
    let mut conversation = Conversation {
        turns: vec![turn(2), turn(0), turn(3)],
        ..Conversation::default()
    };
    conversation.turns[1].messages = vec![
        json!({"role": "user", "content": "a"}),
        json!({"role": "user", "content": [{"type": "text"}, {"type": "image_url"}]}),
    ];
    let counts = |c: &Conversation| [0, 1, 2, 3].map(|turn| c.image_count(turn));
    assert_eq!(counts(&conversation), [2, 3, 6, 6]);
    conversation.context = ContextMode::SelfContained;
    assert_eq!(counts(&conversation), [2, 1, 3, 3]);
}
