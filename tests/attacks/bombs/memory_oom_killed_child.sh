# claim: a child that takes too much memory is killed while its parent goes on, and the report says so
# weaken: limits
# flags: --memory 64MiB
# hits: memory
# In a variable, or the shell would print it when it tells that the child was killed.
child='
held = bytearray(b"x" * (128 << 20))
print("ESCAPED: a child holds 128 MiB of 64")
'
python3 -c "$child"
echo "the child ended with $?"
echo CONTAINED
