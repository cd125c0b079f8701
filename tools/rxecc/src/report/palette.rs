// SPDX-License-Identifier: GPL-2.0

//! The colours of plots and page, in daylight and in the dark.
//!
//! A plot's SVG carries the light colours as attributes, so that it can stand alone.
//! On the page CSS maps each of them, by its attribute, to the dark one where the
//! reader prefers that: so no two roles may share a light colour. Hues of series are
//! those of Okabe and Ito, which the colour-blind can tell apart, darkened where they
//! would be faint on white.

use plotters::style::RGBColor;

/// A colour's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink {
    light: u32,
    dark: u32,
    /// Drawn dashed: dash and gap, pixels.
    pub(crate) dashed: Option<(u32, u32)>,
}

const fn ink(light: u32, dark: u32) -> Ink {
    Ink {
        light,
        dark,
        dashed: None,
    }
}

const fn dashed(light: u32, dark: u32) -> Ink {
    Ink {
        light,
        dark,
        dashed: Some((6, 4)),
    }
}

impl Ink {
    pub(crate) fn color(self) -> RGBColor {
        let [_, r, g, b] = self.light.to_be_bytes();
        RGBColor(r, g, b)
    }

    /// As plots write it in their attributes.
    pub(crate) fn attribute(self) -> String {
        format!("#{:06X}", self.light)
    }
}

/// Behind everything.
pub(crate) const GROUND: Ink = ink(0xFFFFFF, 0x14181D);
pub(crate) const TEXT: Ink = ink(0x414B56, 0xBEC7D0);
pub(crate) const AXIS: Ink = ink(0x87919B, 0x6C7782);
pub(crate) const GRID: Ink = ink(0xE4E8EB, 0x2A3138);
/// Time that figures are not taken from.
pub(crate) const UNMEASURED: Ink = ink(0xF0F2F4, 0x1E242B);
/// What would be fair, what the link carries.
pub(crate) const REFERENCE: Ink = dashed(0x56616C, 0x9FABB7);
pub(crate) const THRESHOLD: Ink = dashed(0x9A4F00, 0xEBA55F);
/// Between Kmin and Kmax.
pub(crate) const RED_ZONE: Ink = ink(0xFDEFD9, 0x33291A);

pub(crate) const SERIES: [Ink; 8] = [
    ink(0x0072B2, 0x3C9BE6),
    ink(0xD55E00, 0xF0803C),
    ink(0x009E73, 0x25BF92),
    ink(0xB5588A, 0xE391C1),
    ink(0xB07800, 0xEDB33A),
    ink(0x3A93CC, 0x93D6FB),
    ink(0x20262C, 0xE9EDF0),
    ink(0x857C00, 0xEDE34B),
];

pub(crate) const MARKS: Ink = ink(0xB57A01, 0xEDB33B);
pub(crate) const CNPS: Ink = ink(0x0073B1, 0x3D9BE6);
pub(crate) const CUTS: Ink = ink(0xB4588B, 0xE391C2);
pub(crate) const DROPS: Ink = ink(0xC0392B, 0xFF7A6B);

/// A phase as recorded, its name, its colour.
pub(crate) const PHASES: [(&str, &str, Ink); 4] = [
    ("unlimited", "no limit", ink(0xD3D9DF, 0x3A434C)),
    ("fast_recovery", "fast recovery", ink(0xE69F00, 0xC98C05)),
    (
        "additive_increase",
        "additive increase",
        ink(0x56B4E9, 0x3E92C5),
    ),
    ("hyper_increase", "hyper increase", ink(0x00805D, 0x1FC795)),
];

fn all() -> impl Iterator<Item = Ink> {
    let single = [
        GROUND, TEXT, AXIS, GRID, UNMEASURED, REFERENCE, THRESHOLD, RED_ZONE, MARKS, CNPS, CUTS,
        DROPS,
    ];
    let phases = PHASES.into_iter().map(|(_, _, ink)| ink);
    single.into_iter().chain(SERIES).chain(phases)
}

/// The rules that turn every plot dark.
pub(crate) fn dark_rules() -> String {
    all()
        .map(|ink| {
            let (light, dark) = (ink.attribute(), format!("#{:06X}", ink.dark));
            format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}\n")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(rgb: u32) -> f64 {
        let [_, r, g, b] = rgb.to_be_bytes();
        let linear = |byte: u8| {
            let c = f64::from(byte) / 255.0;
            match c <= 0.04045 {
                true => c / 12.92,
                false => ((c + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
    }

    /// WCAG 2's contrast ratio.
    fn contrast(a: u32, b: u32) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn assert_contrast(ink: Ink, least: f64) {
        for (ink, ground) in [(ink.light, GROUND.light), (ink.dark, GROUND.dark)] {
            let found = contrast(ink, ground);
            assert!(found >= least, "#{ink:06X} on #{ground:06X}: {found:.2}");
        }
    }

    #[test]
    fn text_has_a_contrast_of_7_and_lines_of_3() {
        assert_contrast(TEXT, 7.0);
        for ink in SERIES
            .into_iter()
            .chain([MARKS, CNPS, CUTS, DROPS, REFERENCE, THRESHOLD])
        {
            assert_contrast(ink, 3.0);
        }
    }

    #[test]
    fn no_two_roles_share_a_light_colour() {
        let inks: Vec<Ink> = all().collect();
        for (at, ink) in inks.iter().enumerate() {
            let twin = inks[..at].iter().find(|other| other.light == ink.light);
            assert_eq!(twin, None, "{}", ink.attribute());
        }
    }
}
