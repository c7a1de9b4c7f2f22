//! Making a picture smaller. A PNG is read row by row and averaged on the way, so that a picture that unfolds to gigabytes
//! takes no more memory than one of its rows and what comes out.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Encoder, Limits, Transformations};

/// Pixels of a picture that is read at all; more take too long.
const MOST_PIXELS: u64 = 100_000_000;
/// Pixels of what comes out.
const MOST_RESULT: u64 = 4_000_000;
/// Below this a picture says nothing any more.
const SMALLEST: u32 = 16;
/// How often a smaller size is tried.
const TRIES: usize = 8;

/// A picture with the same content and at most so many bytes; nothing, if it is no PNG, too large
/// to be read or can't be made that small.
pub fn shrunk(png: &[u8], most: usize) -> Option<Vec<u8>> {
    let (width, height) = {
        let reader = open(png)?;
        (reader.info().width, reader.info().height)
    };
    // As many bytes per pixel as before would fit exactly; a smaller picture has rather more.
    let mut scale = side_of(most as u64, png.len() as u64) * 95 / 100;
    scale = scale.min(side_of(MOST_RESULT, u64::from(width) * u64::from(height)));
    for _ in 0..TRIES {
        let side =
            |length: u32| u32::try_from((u64::from(length) * scale) >> 16).unwrap_or(length).clamp(1, length);
        let (to_width, to_height) = (side(width), side(height));
        if to_width.max(to_height) < SMALLEST {
            return None;
        }
        let result = scaled(png, to_width, to_height)?;
        if result.len() <= most {
            return Some(result);
        }
        scale = (scale * side_of(most as u64, result.len() as u64).min(62_000) * 95 / 100) >> 16;
    }
    None
}

/// How much of each side is left where so much is left of the area, in 65536ths.
fn side_of(part: u64, whole: u64) -> u64 {
    ((part << 32) / whole.max(1)).isqrt().min(1 << 16)
}

fn open(png: &[u8]) -> Option<png::Reader<Cursor<&[u8]>>> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(png), Limits { bytes: 64 << 20 });
    decoder.set_transformations(Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let reader = decoder.read_info().ok()?;
    let info = reader.info();
    // The rows of an interlaced picture do not come in order.
    let is_readable = !info.interlaced
        && u64::from(info.width) * u64::from(info.height) <= MOST_PIXELS
        && info.width <= 1 << 20;
    is_readable.then_some(reader)
}

/// The picture in this size, each pixel the mean of those that it stands for.
fn scaled(png: &[u8], to_width: u32, to_height: u32) -> Option<Vec<u8>> {
    let mut reader = open(png)?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    let (color, _) = reader.output_color_type();
    let channels = color.samples();
    let has_alpha = matches!(color, ColorType::GrayscaleAlpha | ColorType::Rgba);
    let (columns, rows) = (to_width as usize, to_height as usize);

    let mut result = Vec::with_capacity(columns * rows * channels);
    let mut sums = vec![0u64; columns * channels];
    let mut counts = vec![0u64; columns];
    let mut current = 0;
    for y in 0..height {
        // A picture that is cut short is shown as far as it goes.
        let Some(row) = reader.next_row().ok().flatten() else { break };
        let target = y * rows / height;
        if target != current {
            current = target;
            finish_row(&mut result, &mut sums, &mut counts, channels, has_alpha);
        }
        for (x, pixel) in row.data().chunks_exact(channels).enumerate() {
            let column = x * columns / width;
            counts[column] += 1;
            add_pixel(&mut sums[column * channels..][..channels], pixel, has_alpha);
        }
    }
    finish_row(&mut result, &mut sums, &mut counts, channels, has_alpha);
    result.resize(columns * rows * channels, 0);

    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, to_width, to_height);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(&result).ok()?;
    writer.finish().ok()?;
    Some(bytes)
}

/// Colours weigh as much as they are opaque: what is transparent has none.
fn add_pixel(sums: &mut [u64], pixel: &[u8], has_alpha: bool) {
    match pixel.split_last() {
        Some((alpha, colors)) if has_alpha => {
            for (sum, color) in sums.iter_mut().zip(colors) {
                *sum += u64::from(*color) * u64::from(*alpha);
            }
            sums[colors.len()] += u64::from(*alpha);
        }
        _ => sums.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += u64::from(*value)),
    }
}

fn finish_row(result: &mut Vec<u8>, sums: &mut [u64], counts: &mut [u64], channels: usize, has_alpha: bool) {
    for (sums, count) in sums.chunks_exact_mut(channels).zip(counts.iter_mut()) {
        let count = std::mem::take(count).max(1);
        let alpha = if has_alpha { sums[channels - 1] } else { 0 };
        for (place, sum) in sums.iter_mut().enumerate() {
            let weight = if has_alpha && place + 1 < channels { alpha } else { count };
            let mean = (std::mem::take(sum) + weight / 2).checked_div(weight).unwrap_or(0);
            result.push(u8::try_from(mean).unwrap_or(u8::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: u32, height: u32, color: ColorType, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, width, height);
        encoder.set_color(color);
        encoder.set_depth(BitDepth::Eight);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(pixels).unwrap();
        writer.finish().unwrap();
        bytes
    }

    /// What cannot be compressed.
    fn noise(count: usize) -> Vec<u8> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        (0..count).map(|_| next()).collect()
    }

    fn read(png: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = open(png).unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width, info.height, pixels)
    }

    #[test]
    fn a_large_picture_fits_and_keeps_its_shape() {
        for (color, channels) in [
            (ColorType::Rgba, 4),
            (ColorType::Rgb, 3),
            (ColorType::Grayscale, 1),
            (ColorType::GrayscaleAlpha, 2),
        ] {
            let large = picture(1200, 600, color, &noise(1200 * 600 * channels));
            for most in [300_000, 20_000] {
                let small = shrunk(&large, most).unwrap();
                assert!(small.len() <= most && small.len() > most / 4, "{color:?} {most} {}", small.len());
                let (width, height, _) = read(&small);
                assert!((f64::from(width) / f64::from(height) - 2.0).abs() < 0.05, "{width} × {height}");
            }
        }
    }

    #[test]
    fn colours_are_averaged_and_transparent_ones_do_not_count() {
        // Black and white stripes, then red beside something transparent that is green.
        let stripes: Vec<u8> = (0..4).flat_map(|_| [0, 0, 0, 255, 255, 255].repeat(2)).collect();
        let png = picture(4, 4, ColorType::Rgb, &stripes);
        assert_eq!(read(&scaled(&png, 2, 2).unwrap()).2, [128; 12]);
        let red = [255, 0, 0, 255, 0, 255, 0, 0];
        let png = picture(2, 1, ColorType::Rgba, &red);
        assert_eq!(read(&scaled(&png, 1, 1).unwrap()).2, [255, 0, 0, 128]);
    }

    #[test]
    fn what_is_no_picture_or_unfolds_to_gigabytes_is_refused() {
        assert_eq!(shrunk(b"", 10), None);
        assert_eq!(shrunk(&noise(1000), 10), None);
        // The header says 20,000 × 10,000 pixels.
        let mut huge = picture(300, 300, ColorType::Grayscale, &noise(90_000));
        huge[16..20].copy_from_slice(&20_000u32.to_be_bytes());
        huge[20..24].copy_from_slice(&10_000u32.to_be_bytes());
        let sum = crc32fast::hash(&huge[12..29]);
        huge[29..33].copy_from_slice(&sum.to_be_bytes());
        assert!(open(&huge).is_none());
        assert_eq!(shrunk(&huge, 100), None);
        let whole = picture(300, 300, ColorType::Rgb, &noise(270_000));
        for end in [8, 30, 50, 1000, whole.len() - 20] {
            let _ = shrunk(&whole[..end], 10_000);
        }
        assert_eq!(shrunk(&whole, 50), None);
    }
}
