package collector

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var pciAddress = regexp.MustCompile(`^([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?$`)

// PCIAddress returns a PCI address as the kernel writes it, 0000:3b:00.0, whether
// it was written by the kernel's driver (0000:3b:00), by NVML (00000000:3B:00.0) or
// in sysfs. What is no address gives an empty string.
func PCIAddress(written string) string {
	m := pciAddress.FindStringSubmatch(written)
	if m == nil {
		return ""
	}
	domain, err := strconv.ParseUint(m[1], 16, 32)
	if err != nil {
		return ""
	}
	function := m[4]
	if function == "" {
		function = "0"
	}
	return fmt.Sprintf("%04x:%s:%s.%s", domain, strings.ToLower(m[2]), strings.ToLower(m[3]), function)
}
