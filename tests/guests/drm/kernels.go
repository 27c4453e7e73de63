package drm

import (
	"fmt"
	"strconv"
	"strings"
)

// Kernel is what one line of kernels does where the three that the lab boots
// differ, or where a test needs the exact words. It is data for tests: nothing
// in this package acts on it.
//
// Common to all: a killed channel is known by GEM_PUSHBUF = ENODEV (checked before
// anything else, so an empty submission asks safely); CPU_PREP returns 0 for it,
// because its fences are signalled, with an error nobody reads; the kernel logs
// "channel N killed!" at level warning; CHANNEL_FREE works; an unknown channel
// is ENOENT. GROBJ_ALLOC and NVIF NEW exist in all three and make the same objects.
type Kernel struct {
	Line         string // "6.1"
	Major, Minor int

	// NVIF is dispatched by usif.c up to 6.11: the whole nvkm client tree is
	// reachable and object handles are returned through it. From 6.12 on nouveau_abi16.c
	// serves four messages only (SCLASS, NEW, DEL, MTHD info), and a NEW with a token
	// that is taken is EEXIST.
	FullNVIF bool
	// ExecPushMax, VRAMUsed: GETPARAM 17 came with 6.6, 18 and 19 with 6.9.
	ExecPushMax bool
	VRAMUsed    bool
	// Mover names the engine nouveau chooses to move buffers. 6.1 makes a channel with
	// CE objects and finds 90b8. From 6.2 on it asks for a privileged CE channel, which
	// fails on every Fermi, and M2MF on the GR channel is left.
	Mover string
	// KnownErrors are the lines of level error or worse that a healthy probe logs.
	KnownErrors []string

	// Faults lists, in order, fragments of the lines logged for an MMU fault of a
	// channel. Those of 6.1 come from gf100_fifo_fault and gf100_fifo_recover,
	// those of the others from gf100_fifo_mmu_fault_recover and nvkm_chan_error.
	Faults []string
	// KilledBy tells which errors end the channel.
	KilledBy map[Offence]bool
	// Says tells a fragment of the line that nouveau logs for each.
	Says map[Offence]string
}

// Offence is something a channel must not do.
type Offence string

// The offences, by the interrupt in which the hardware reports them.
const (
	OffenceMMUFault       Offence = "mmu-fault"        // PFIFO 002100 bit 28
	OffenceHostMethod     Offence = "host-method"      // PBDMA 040108 bit 21: a method below 100h that does not exist
	OffenceEmptySubchan   Offence = "empty-subchannel" // PBDMA bit 23: a method for a subchannel nothing was bound to
	OffenceBadHeader      Offence = "bad-header"       // PBDMA bit 18: not a command header
	OffenceEngineMethod   Offence = "engine-method"    // PGRAPH 400100 bit 4
	OffenceEngineClass    Offence = "engine-class"     // PGRAPH 400100 bit 5
	OffenceSemaphoreFault Offence = "semaphore-fault"  // MMU fault of the host's own access
)

// pbdmaFatal is the mask of PBDMA interrupt bits for which kernels from 6.2 on
// disable the channel (gf100_runq_intr). 6.1 only logs them and skips the method.
const pbdmaFatal = 0xc67fe000

// Kernels is the table, oldest first.
var Kernels = []Kernel{
	{
		Line: "6.1", Major: 6, Minor: 1,
		FullNVIF: true,
		Mover:    "COPY1",
		Faults:   []string{" fault at ", "engine fault on channel ", "killed!"},
		KilledBy: map[Offence]bool{OffenceMMUFault: true, OffenceSemaphoreFault: true},
		Says:     says,
	},
	{
		Line: "6.12", Major: 6, Minor: 12,
		ExecPushMax: true, VRAMUsed: true,
		Mover:       "M2MF",
		KnownErrors: []string{"failed to create ce channel, -22"},
		Faults:      []string{"fault ", "rc scheduled", "errored - disabling channel", "killed!"},
		KilledBy:    pbdmaKills,
		Says:        says,
	},
	{
		Line: "7.2", Major: 7, Minor: 2,
		ExecPushMax: true, VRAMUsed: true,
		Mover:       "M2MF",
		KnownErrors: []string{"failed to create ce channel, -22"},
		Faults:      []string{"fault ", "rc scheduled", "errored - disabling channel", "killed!"},
		KilledBy:    pbdmaKills,
		Says:        says,
	},
}

// Bits 21 and 18 are in pbdmaFatal, bit 23 is not. gf100_gr_intr never kills.
var pbdmaKills = map[Offence]bool{
	OffenceMMUFault:       true,
	OffenceSemaphoreFault: true,
	OffenceHostMethod:     true,
	OffenceBadHeader:      true,
}

var says = map[Offence]string{
	OffenceMMUFault:       "fault",
	OffenceSemaphoreFault: "fault",
	OffenceHostMethod:     "ILLEGAL_MTHD",
	OffenceEmptySubchan:   "EMPTY_SUBC",
	OffenceBadHeader:      "PBDMA",
	OffenceEngineMethod:   "ILLEGAL_MTHD",
	OffenceEngineClass:    "ILLEGAL_CLASS",
}

// KernelOf finds the row for a release ("6.12.94+deb13-amd64"): the newest row
// that is not newer than it.
func KernelOf(release string) (Kernel, error) {
	major, minor, err := parseRelease(release)
	if err != nil {
		return Kernel{}, err
	}
	for i := len(Kernels) - 1; i >= 0; i-- {
		k := Kernels[i]
		if major > k.Major || major == k.Major && minor >= k.Minor {
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("kernel %s is older than %s, the oldest known", release, Kernels[0].Line)
}

func parseRelease(release string) (major, minor int, err error) {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return 0, 0, fmt.Errorf("kernel release %q: want MAJOR.MINOR", release)
	}
	digits := func(s string) string {
		return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
	}
	if major, err = strconv.Atoi(parts[0]); err != nil {
		return 0, 0, fmt.Errorf("kernel release %q: %w", release, err)
	}
	if minor, err = strconv.Atoi(digits(parts[1])); err != nil {
		return 0, 0, fmt.Errorf("kernel release %q: %w", release, err)
	}
	return major, minor, nil
}
