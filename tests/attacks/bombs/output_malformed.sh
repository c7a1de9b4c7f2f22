# claim: output that is not text does not break the report
# weaken: limits
# flags: --output 32KiB
# hits: output
# Lone continuation bytes, an overlong slash, half a pair, beyond the last code point, NUL, a terminal's escapes.
piece=$'\x80\xbf\xc0\xaf\xed\xa0\x80\xf5\x90\x80\x80\xff\xfe"\\{}]\e]0;title\a\e[2J\r\b'
for (( i = 0; i < 3000; i++ )); do
    printf '%s\0' "$piece"
    printf '%s\0' "$piece" >&2
done
# What is cut in the middle may be a character of four bytes.
printf '\xf0\x9f\xa6\n'
echo CONTAINED
