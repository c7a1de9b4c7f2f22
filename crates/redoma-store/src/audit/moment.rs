//! Times as people write and read them, UTC.

/// `2026-11-15T21:03:00.250Z`
pub fn written(ms: i64) -> String {
    let (seconds, millis) = (ms.div_euclid(1000), ms.rem_euclid(1000));
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Days are counted from the first of March of the year 0: then a leap day is the last of its year.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a time; write how long ago (90s, 30m, 1h, 7d), or a time such as 2026-11-15 or 2026-11-15T21:00:00Z"
)]
pub struct NotAMoment(String);

/// How long ago, or when: milliseconds since 1970.
pub fn parse(text: &str, now: i64) -> Result<i64, NotAMoment> {
    let bad = || NotAMoment(text.to_owned());
    if let Ok(span) = text.parse::<redoma_model::Span>() {
        let ago = i64::try_from(span.0.as_millis()).map_err(|_| bad())?;
        // A bare number is a moment in milliseconds, as records have it.
        return match text.parse::<i64>() {
            Ok(ms) => Ok(ms),
            Err(_) => Ok(now.saturating_sub(ago)),
        };
    }
    if !text.is_ascii() {
        return Err(bad());
    }
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time.strip_suffix('Z').unwrap_or(time)),
        None => (text, "00:00:00"),
    };
    let number = |text: &str, least: i64, most: i64| {
        let is_number = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| is_number && (least..=most).contains(number)).ok_or_else(bad)
    };
    let [year, month, day] = date.split('-').collect::<Vec<_>>()[..] else { return Err(bad()) };
    let (clock, millis) = time.split_once('.').unwrap_or((time, "0"));
    let parts: Vec<_> = clock.split(':').collect();
    let (hour, minute, second) = match parts[..] {
        [hour, minute] => (hour, minute, "0"),
        [hour, minute, second] => (hour, minute, second),
        _ => return Err(bad()),
    };
    let (year, month, day) = (number(year, 1970, 9999)?, number(month, 1, 12)?, number(day, 1, 31)?);
    let (hour, minute, second) = (number(hour, 0, 23)?, number(minute, 0, 59)?, number(second, 0, 59)?);
    let millis = number(&format!("{millis:0<3}")[..3], 0, 999)?;
    Ok((days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second) * 1000 + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back_as_they_are_written() {
        for ms in [0, 951_782_400_000, 1_763_240_580_250, 4_102_444_799_999] {
            assert_eq!(parse(&written(ms), 0), Ok(ms), "{}", written(ms));
        }
        assert_eq!(written(951_782_400_000), "2000-02-29T00:00:00.000Z");
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        let now = 1_000_000_000;
        assert_eq!(parse("1h", now), Ok(now - 3_600_000));
        assert_eq!(parse("7d", now), Ok(now - 7 * 86_400_000));
        assert_eq!(parse("1763240580250", now), Ok(1_763_240_580_250));
        assert_eq!(parse("2000-02-29", now), Ok(951_782_400_000));
        assert_eq!(parse("2000-02-29 00:01", now), Ok(951_782_460_000));
        assert_eq!(parse("2000-02-29T00:00:00.5Z", now), Ok(951_782_400_500));
        for bad in [
            "",
            "yesterday",
            "2000-13-01",
            "2000-1",
            "2000-01-01T25:00",
            "2000-01-01T1:2:3:4",
            "é",
            "-1h",
            "+1",
        ] {
            assert!(parse(bad, now).is_err(), "{bad}");
        }
    }
}
