# claim: how the host was booted stays unknown: command line, disks, drivers, hardware
# weaken: mask_proc
for name in cmdline partitions diskstats devices interrupts iomem ioports modules misc dma swaps consoles bus/pci/devices bus/input/devices tty/drivers driver/rtc scsi/scsi; do
  content=$(head -c 300 "/proc/$name" 2>/dev/null | tr '\0' ' ')
  if [ -n "$content" ]; then
    echo "ESCAPED: /proc/$name: ${content:0:100}"
  else
    echo "nothing in $name"
  fi
done
echo CONTAINED
