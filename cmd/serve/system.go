package serve

import (
	"log/slog"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// addressSpace is how many bytes of addresses this process has: those of x86-64 and arm64 with four
// levels of page tables, or what its limit leaves.
func addressSpace() uint64 {
	most := uint64(1) << 47
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &r) == nil {
		most = min(most, r.Cur)
	}
	return most
}

// clientAlloc is how much memory the GPU may allocate in the files of one client; 0, with a line of
// the log, where the system cannot bound it and the user has not asked for a bound.
func clientAlloc(c *config.Config, whole bool, log *slog.Logger) (uint64, error) {
	if err := vfiouser.CheckDMAAlloc(); err != nil && !c.Given(config.ClientAlloc) {
		log.Warn("the memory that GPUs allocate in clients' files has no bound; permit the system call userfaultfd, or give QEMU's memory backends prealloc=on", "error", err)
		return 0, nil
	}
	return c.ClientPart(config.ClientAlloc, memoryLimit(), whole)
}

// memoryLimit is how much this process can have: the machine's, or what its control groups leave.
func memoryLimit() uint64 {
	most := ^uint64(0)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		most = info.Totalram * uint64(info.Unit)
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return most
	}
	return min(most, groupLimit("/sys/fs/cgroup", string(groups)))
}

// groupLimit is the least limit of the control group (version 2) that /proc/self/cgroup lists, and of
// those above it.
func groupLimit(root, groups string) uint64 {
	most := ^uint64(0)
	for line := range strings.SplitSeq(groups, "\n") {
		at, ok := strings.CutPrefix(line, "0::")
		if !ok {
			continue
		}
		for group := path.Join("/", at); ; group = path.Dir(group) {
			if text, err := os.ReadFile(path.Join(root, group, "memory.max")); err == nil {
				if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil { // not "max"
					most = min(most, n)
				}
			}
			if group == "/" {
				break
			}
		}
	}
	return most
}
