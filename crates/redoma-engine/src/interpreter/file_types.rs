//! Which files may come in: by their name's extension and by what their first bytes say. The two must go together: a
//! program that is named like a picture is refused, whatever the list allows.
//!
//! This keeps honest people from surprises and the operator's rules enforced. It is no wall: inside a sandbox any file can
//! be made anyway.

use std::collections::BTreeSet;

use redoma_model::FileName;

/// How many of a file's first bytes are looked at.
pub(super) const HEAD: usize = 8 << 10;

/// Extensions that are allowed where nothing else is said.
const USUAL: &str = "txt text md markdown rst log csv tsv psv json jsonl ndjson geojson ipynb xml yaml yml toml ini cfg conf \
    properties env html htm css svg tex bib srt vtt ics vcf eml \
    py pyi js mjs cjs ts mts cts tsx jsx sh bash sql r rmd jl java kt scala c h cc cpp cxx hpp cs go rs rb php pl lua \
    swift m f90 d dart vue svelte proto graphql ps1 bat make cmake diff patch lock \
    png jpg jpeg gif webp bmp tif tiff ico heic avif psd \
    pdf doc docx xls xlsx xlsm xlsb ppt pptx odt ods odp rtf epub pages numbers key \
    zip gz tgz tar bz2 xz zst 7z rar \
    parquet feather arrow avro orc npy npz pkl pickle joblib h5 hdf5 nc mat sav dta sas7bdat rds rdata db sqlite sqlite3 \
    dbf shp shx prj gpkg kml kmz gpx las bin dat onnx safetensors \
    mp3 wav ogg oga flac m4a aac mp4 m4v mov webm avi mkv \
    ttf otf woff woff2 stl obj ply glb gltf dxf";

/// Extensions whose content must be of one of these kinds (as `infer` names them).
const KINDS: &[(&[&str], &[&str])] = &[
    (&["png"], &["png"]),
    (&["jpg", "jpeg"], &["jpg"]),
    (&["gif"], &["gif"]),
    (&["webp"], &["webp"]),
    (&["bmp"], &["bmp"]),
    (&["tif", "tiff"], &["tif"]),
    (&["pdf"], &["pdf"]),
    (
        &[
            "docx", "xlsx", "xlsm", "xlsb", "pptx", "odt", "ods", "odp", "epub", "kmz", "npz", "zip",
            "pages", "numbers", "key",
        ],
        &["zip", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub", "jar"],
    ),
    (&["doc", "xls", "ppt"], &["doc", "xls", "ppt", "msi", "zip", "docx", "xlsx", "pptx", "rtf"]),
    (&["gz", "tgz"], &["gz"]),
    (&["bz2"], &["bz2"]),
    (&["xz"], &["xz"]),
    (&["zst"], &["zst"]),
    (&["7z"], &["7z"]),
    (&["rar"], &["rar"]),
    (&["parquet"], &["parquet"]),
    (&["sqlite", "sqlite3"], &["sqlite"]),
];

/// What is text: any encoding of it, but no other kind of file.
const TEXT: &str = "txt text md markdown rst log csv tsv psv json jsonl ndjson geojson ipynb xml yaml yml toml ini cfg conf \
    properties env html htm css svg tex bib srt vtt ics vcf eml py pyi js mjs cjs ts mts cts tsx jsx sh bash sql r rmd jl java kt \
    scala c h cc cpp cxx hpp cs go rs rb php pl lua swift m f90 d dart vue svelte proto graphql ps1 bat make cmake diff \
    patch lock kml gpx";

/// Kinds that are text themselves, whatever else a text file is called.
const TEXT_KINDS: [&str; 4] = ["html", "xml", "sh", "svg"];

/// How programs for a host begin (Linux, Windows, macOS, Java, Android, WebAssembly): never, under no name.
const PROGRAMS: [&[u8]; 10] = [
    b"\x7fELF",
    b"MZ\0",
    b"MZ\x90",
    b"\xfe\xed\xfa\xce",
    b"\xfe\xed\xfa\xcf",
    b"\xce\xfa\xed\xfe",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"dex\n",
    b"\0asm",
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFileType {
    #[error("files of type .{0} may not be uploaded here")]
    Extension(String),
    #[error("files without an extension may be uploaded here only if they are text")]
    NoExtension,
    #[error("its content is {found}, which does not go with .{extension}")]
    Mismatch { extension: String, found: String },
    #[error("its content is not what a .{0} file holds")]
    NotThat(String),
    #[error("it is a program, whatever it is called; programs may not be uploaded")]
    Program,
}

/// The rules.
#[derive(Debug, Clone)]
pub struct FileTypes {
    /// Everything, if there is none.
    allowed: Option<BTreeSet<String>>,
    /// Whether anything may come in that is text, whatever it is called.
    any_text: bool,
}

impl Default for FileTypes {
    fn default() -> Self {
        Self::only(&["usual".to_owned()])
    }
}

impl FileTypes {
    /// Only these extensions; `*` is all, `text` whatever is text, `usual` what is allowed by default.
    pub fn only(extensions: &[String]) -> Self {
        if extensions.iter().any(|extension| extension == "*") {
            return Self { allowed: None, any_text: true };
        }
        let any_text = extensions.iter().any(|extension| matches!(extension.as_str(), "usual" | "text"));
        let mut allowed = BTreeSet::new();
        for extension in extensions {
            match extension.as_str() {
                "text" => {}
                "usual" => allowed.extend(USUAL.split_whitespace().map(ToOwned::to_owned)),
                other => {
                    allowed.insert(other.trim_start_matches('.').to_ascii_lowercase());
                }
            }
        }
        Self { allowed: Some(allowed), any_text }
    }

    /// Whether a file of this name may begin with these bytes: its first ones, or none if it is empty or not yet known.
    pub fn check(&self, name: &FileName, head: &[u8]) -> Result<(), BadFileType> {
        let Some(allowed) = &self.allowed else { return Ok(()) };
        let extension = name.extension();
        if let Some(extension) = &extension
            && !allowed.contains(extension)
            && !(self.any_text && is_plain_text(head))
        {
            return Err(BadFileType::Extension(extension.clone()));
        }
        if head.is_empty() {
            return Ok(());
        }
        let found = infer::get(head);
        if PROGRAMS.iter().any(|beginning| head.starts_with(beginning)) {
            return Err(BadFileType::Program);
        }
        let Some(extension) = extension else {
            return if is_plain_text(head) { Ok(()) } else { Err(BadFileType::NoExtension) };
        };
        let mismatch =
            |found: &str| BadFileType::Mismatch { extension: extension.clone(), found: found.to_owned() };
        if TEXT.split_whitespace().any(|text| text == extension) {
            return match found {
                Some(kind) if !TEXT_KINDS.contains(&kind.extension()) && !is_text(head) => {
                    Err(mismatch(kind.mime_type()))
                }
                _ if !is_text(head) => Err(BadFileType::NotThat(extension)),
                _ => Ok(()),
            };
        }
        let Some((_, kinds)) = KINDS.iter().find(|(names, _)| names.contains(&extension.as_str())) else {
            return Ok(());
        };
        match found {
            Some(kind) if kinds.contains(&kind.extension()) => Ok(()),
            Some(kind) => Err(mismatch(kind.mime_type())),
            None => Err(BadFileType::NotThat(extension)),
        }
    }
}

/// Text has no zero bytes, unless it is in one of the encodings that say so at their beginning.
fn is_text(head: &[u8]) -> bool {
    head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") || !head.contains(&0)
}

/// Text that is not also something else.
fn is_plain_text(head: &[u8]) -> bool {
    is_text(head) && infer::get(head).is_none_or(|kind| TEXT_KINDS.contains(&kind.extension()))
}

/// What a file is said to be when it is handed out.
pub(super) fn content_type(name: &FileName) -> String {
    let guess = mime_guess::from_path(name.as_str()).first_or_octet_stream();
    let essence = guess.essence_str();
    let is_text = guess.type_() == "text" || matches!(essence, "application/json" | "application/javascript");
    if is_text { format!("{essence}; charset=utf-8") } else { essence.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, head: &[u8]) -> Result<(), BadFileType> {
        FileTypes::default().check(&name.parse().unwrap(), head)
    }

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    #[test]
    fn a_file_is_what_its_name_says() {
        for (name, head) in [
            ("a.png", PNG),
            ("a.csv", b"a,b\n1,2\n"),
            ("a.csv", b"\xff\xfea\0,\0"),
            ("notes", b"hello"),
            ("empty.pdf", b""),
            ("page.html", b"<!DOCTYPE html><html></html>"),
            ("page.txt", b"<!DOCTYPE html><html></html>"),
            ("a.xlsx", b"PK\x03\x04\x14\0\0\0\x08\0"),
            ("a.pkl", b"\x80\x04\x95"),
            ("a.sh", b"#!/bin/sh\n"),
            ("schema.xsd", b"<?xml version=\"1.0\"?>"),
            ("odd.unknown", b"text"),
        ] {
            assert_eq!(check(name, head), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_file_that_pretends_is_refused() {
        for (name, head) in [
            ("a.png", &b"GIF89a\x01\x00"[..]),
            ("a.png", b"hello"),
            ("a.csv", PNG),
            ("a.pdf", b"\x7fELF\x02\x01\x01\0"),
            ("a.bin", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0"),
            ("a.exe", b"MZ\0\x01"),
            ("odd.unknown", b"a\0b"),
            ("a.dat", b"MZ\x90\0\x03\0\0\0\x04\0\0\0\xff\xff"),
            ("noextension", PNG),
            ("noextension", b"a\0b"),
        ] {
            assert!(check(name, head).is_err(), "{name}");
        }
    }

    #[test]
    fn the_operator_decides_which() {
        let only = FileTypes::only(&["csv".to_owned(), ".PNG".to_owned()]);
        assert_eq!(only.check(&"a.csv".parse().unwrap(), b"a"), Ok(()));
        assert_eq!(only.check(&"a.PNG".parse().unwrap(), PNG), Ok(()));
        let error = only.check(&"a.pdf".parse().unwrap(), b"%PDF-").unwrap_err();
        assert_eq!(error.to_string(), "files of type .pdf may not be uploaded here");
        let all = FileTypes::only(&["*".to_owned()]);
        assert_eq!(all.check(&"a.exe".parse().unwrap(), b"MZ"), Ok(()));
    }
}
