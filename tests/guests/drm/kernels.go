package drm

import "strings"

// Kernel is how a line of kernels treats a channel that breaks a rule.
//
// Common to all: GEM_PUSHBUF on a killed channel fails with ENODEV before it checks
// anything else, so an empty submission is a safe question. CPU_PREP returns 0 for it.
// The kernel logs "channel N killed!" at level warning.
type Kernel struct {
	Line string // "6.1"
	// Faults are, in order, fragments of the lines logged for an MMU fault of a channel.
	Faults []string
	// KilledBy tells which offences end the channel.
	KilledBy map[Offence]bool
	// Says is a fragment of the line that nouveau logs for each offence.
	Says map[Offence]string
}

// Offence is something a channel must not do.
type Offence string

// The offences, by the interrupt in which the hardware reports them.
const (
	OffenceMMUFault       Offence = "mmu-fault"        // PFIFO 002100 bit 28
	OffenceHostMethod     Offence = "host-method"      // PBDMA 040108 bit 21: no such method below 100h
	OffenceEmptySubchan   Offence = "empty-subchannel" // PBDMA bit 23: a method for an unbound subchannel
	OffenceBadHeader      Offence = "bad-header"       // PBDMA bit 18: not a command header
	OffenceEngineMethod   Offence = "engine-method"    // PGRAPH 400100 bit 4
	OffenceEngineClass    Offence = "engine-class"     // PGRAPH 400100 bit 5
	OffenceSemaphoreFault Offence = "semaphore-fault"  // MMU fault of the host's own access
)

var says = map[Offence]string{
	OffenceMMUFault:       "fault",
	OffenceSemaphoreFault: "fault",
	OffenceHostMethod:     "ILLEGAL_MTHD",
	OffenceEmptySubchan:   "EMPTY_SUBC",
	OffenceBadHeader:      "PBDMA",
	OffenceEngineMethod:   "ILLEGAL_MTHD",
	OffenceEngineClass:    "ILLEGAL_CLASS",
}

// KernelOf finds the row for a release such as "6.12.94+deb13-amd64". From 6.2 on
// kernels disable the channel for the PBDMA interrupts of mask c67fe000 (gf100_runq_intr):
// bits 21 and 18 are in it, bit 23 is not. 6.1 logs them and skips the method.
func KernelOf(release string) Kernel {
	if strings.HasPrefix(release, "6.1.") {
		return Kernel{
			Line: "6.1", Says: says,
			Faults:   []string{" fault at ", "engine fault on channel ", "killed!"},
			KilledBy: map[Offence]bool{OffenceMMUFault: true, OffenceSemaphoreFault: true},
		}
	}
	return Kernel{
		Line: "6.12", Says: says,
		Faults:   []string{"fault ", "rc scheduled", "errored - disabling channel", "killed!"},
		KilledBy: map[Offence]bool{OffenceMMUFault: true, OffenceSemaphoreFault: true, OffenceHostMethod: true, OffenceBadHeader: true},
	}
}
