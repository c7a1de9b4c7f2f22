# claim: names that look like options, patterns, home folders or parents are plain names
# weaken: harvest
canary=$1
for name in -rf --help -- - '*' '~' '~root' ... .... '.. ' ' ..' '..a' '$HOME' '$(id)' '`id`' '|sh' '>x' 'a;b' '\' '\..' '%2e%2e' 'C:' 'con' '.git' '.ssh' '.bashrc'; do
  ln -s -- "$canary/secret.txt" "./$name"
  mkdir -- "./$name.d" && echo harmless > "./$name.d/$name"
done
mkdir -p -- './.../..../.. ' && ln -s -- "$canary/secret.txt" './.../..../.. /deep'
echo CONTAINED
