package card

import (
	"os"
	"strconv"
	"strings"
)

// SystemMappings is how many mappings the system lets a process have (vm.max_map_count).
func SystemMappings() int {
	const usual = 65530
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	n, perr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || perr != nil {
		n = usual
	}
	return n
}

// VRAMMappings is how many of them a card's memory may take.
func VRAMMappings() int { return SystemMappings() / 4 * 3 }
