//! Pictures, made or resized.
//!
//! In: an [`ImagePlan`] and a picture's number. Out: a data URL. Never: another picture for the same seed and number.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder, RgbImage, imageops};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use rand_chacha::ChaCha12Rng;

use crate::config::{ImageFormat, ImageOrder, ImagePlan, ImageSource};
use crate::dataset::DatasetError;
use crate::dataset::length;
use crate::dataset::seed::{child_seed, numbered};

/// Of JPEG, from 1 to 100.
const QUALITY: u8 = 75;

/// Longest side of a picture, which is JPEG's.
const SIDE_MOST: u32 = 65_535;

/// Makes pictures.
pub(super) struct Pictures<'a> {
    plan: &'a ImagePlan,
    pictures: u64,
    orders: u64,
}

impl<'a> Pictures<'a> {
    pub(super) fn new(plan: &'a ImagePlan, seed: u64) -> Pictures<'a> {
        Pictures {
            plan,
            pictures: child_seed(seed, "dataset.image"),
            orders: child_seed(seed, "dataset.image.order"),
        }
    }

    pub(super) fn per_turn(&self) -> usize {
        self.plan.per_turn
    }

    /// Picture number `index`.
    pub(super) fn make(&self, index: u64) -> Result<String, DatasetError> {
        let mut generator = numbered(self.pictures, index);
        let width = length::draw(self.plan.width, 1, &mut generator).min(SIDE_MOST);
        let height = length::draw(self.plan.height, 1, &mut generator).min(SIDE_MOST);
        let jpeg = match self.plan.format {
            ImageFormat::Png => false,
            ImageFormat::Jpeg => true,
            ImageFormat::Random => generator.random(),
        };
        let picture = match &self.plan.source {
            ImageSource::Noise => noise(width, height, &mut generator),
            ImageSource::Files { paths, order } => {
                let number = self.pick(*order, paths.len(), index, &mut generator);
                resized(&paths[number], width, height)?
            }
        };
        Ok(data_url(&picture, jpeg))
    }

    /// Which of `count` files picture `index` is made from.
    fn pick(
        &self,
        order: ImageOrder,
        count: usize,
        index: u64,
        generator: &mut ChaCha12Rng,
    ) -> usize {
        let (cycle, place) = (index / count as u64, index % count as u64);
        let place = usize::try_from(place).unwrap_or(0);
        match order {
            ImageOrder::Random => generator.random_range(0..count),
            ImageOrder::Sequential => place,
            ImageOrder::Shuffled => {
                let mut all: Vec<usize> = (0..count).collect();
                all.shuffle(&mut numbered(self.orders, cycle));
                all[place]
            }
        }
    }
}

fn noise(width: u32, height: u32, generator: &mut ChaCha12Rng) -> RgbImage {
    let mut picture = RgbImage::new(width, height);
    generator.fill_bytes(&mut picture);
    picture
}

fn resized(path: &Path, width: u32, height: u32) -> Result<RgbImage, DatasetError> {
    let picture = image::ImageReader::open(path)
        .and_then(image::ImageReader::with_guessed_format)
        .map_err(image::ImageError::IoError)
        .and_then(image::ImageReader::decode)
        .map_err(|error| {
            DatasetError::Media(format!(
                "--image-source: {} cannot be read as PNG or JPEG: {error}; leave it out of the folder",
                path.display()
            ))
        })?;
    Ok(imageops::resize(
        &picture.to_rgb8(),
        width,
        height,
        imageops::FilterType::Triangle,
    ))
}

fn data_url(picture: &RgbImage, jpeg: bool) -> String {
    let (width, height) = picture.dimensions();
    let color = ExtendedColorType::Rgb8;
    let mut bytes = Vec::new();
    let written = if jpeg {
        JpegEncoder::new_with_quality(&mut bytes, QUALITY)
            .write_image(picture, width, height, color)
    } else {
        // Noise cannot be made smaller; a slow search for a better way would cost seconds.
        PngEncoder::new_with_quality(&mut bytes, CompressionType::Fast, FilterType::Adaptive)
            .write_image(picture, width, height, color)
    };
    assert!(written.is_ok(), "a picture within bounds, into memory");
    let kind = if jpeg { "jpeg" } else { "png" };
    let mut url = format!("data:image/{kind};base64,");
    BASE64_STANDARD.encode_string(bytes, &mut url);
    url
}
