# claim: the classic `:(){ :|:& };:` ends at the pids limit
# weaken: limits
# flags: --pids 32
# hits: pids
mkfifo never
exec 3<>never 2>/dev/null

# Each call becomes two; 2^8 - 2 processes at most, none of which lives longer than two seconds.
bomb() {
    if (( $1 == 0 )); then
        read -r -t 2 _ <&3
    else
        bomb $(( $1 - 1 )) | bomb $(( $1 - 1 )) &
        read -r -t 2 _ <&3
    fi
}
bomb 7 &
read -r -t 1 _ <&3
alive=(/proc/[0-9]*)
echo "processes: ${#alive[@]}"
(( ${#alive[@]} > 32 )) && echo "ESCAPED: ${#alive[@]} processes at one time"
echo CONTAINED
