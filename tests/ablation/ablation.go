// Package ablation lists behaviours of the GF100 that nouveau needs. Each row leaves one out and
// has the reaction of an unmodified nouveau, which is the reason why the behaviour exists.
package ablation

import (
	"fmt"

	"github.com/umbra-gpu/umbra/mmio"
)

// Outcome is how far nouveau gets.
type Outcome string

// The outcomes.
const (
	// Works: the render node appears and copies by the GPU are right.
	Works Outcome = "works"
	// Limps: the render node appears, and the symptom shows the missing part.
	Limps Outcome = "limps"
	// Fails: the probe ends with an error; there is no render node.
	Fails Outcome = "fails"
	// Dies: the driver's thread ends in a kernel oops or never ends.
	Dies Outcome = "dies"
)

// Row leaves one behaviour out: registers become plain storage. A test applies each and checks
// the reaction.
//
// Options leave out behaviours that are not registers: the configuration space's NoMSI, the
// face's VRAM and TPCs.
type Row struct {
	Name      string
	Without   string   // what is left out, in words
	Registers []string // rows that become plain storage
	Value     uint32   // what they hold
	Outcome   Outcome
	// Symptom is a regular expression that the kernel's log must match. An empty
	// one means that the log must stay as clean as without the ablation.
	Symptom string
	// Kernels are the versions it was seen on, as "6.1"; others may differ.
	Kernels []string
	// When is the action after the probe that causes the symptom.
	When string
}

const (
	divideError = `divide error|Oops: divide`
	timedOut    = `nouveau [0-9a-f:.]+: timeout|WARNING: .*nouveau`
)

// Rows is the table.
var Rows = []Row{
	{Name: "not-posted", Without: "devinit done by the board's firmware: scripts are executed",
		Registers: []string{"NV_PUNITS_UNK00C"}, Outcome: Works, Kernels: []string{"6.1", "6.12", "7.2"}},
	{Name: "straps-zero", Without: "the crystal strap: 13.5 MHz instead of 27",
		Registers: []string{"NV_PSTRAPS_STRAPS0_PRIMARY"}, Outcome: Works, Kernels: []string{"6.1", "6.12", "7.2"}},
	{Name: "endian", Without: "a zero endianness register",
		Registers: []string{"NV_PMC_BOOT_1"}, Value: 0x01000001, Outcome: Works, Kernels: []string{"6.1", "6.12", "7.2"}},
	{Name: "speedo-zero", Without: "the speed fuse",
		Registers: []string{"NV_PFUSE_FUSES_SPEEDO"}, Outcome: Limps,
		Symptom: `volt: couldn't find speedo value`, Kernels: []string{"6.1", "6.12", "7.2"}},
	{Name: "display-on", Without: "the fuse that takes the display engine out",
		Registers: []string{"NV_PUNITS_HW_MISC_DISABLE"}, Outcome: Works, Kernels: []string{"6.1", "6.12", "7.2"}},
	{Name: "sensor-off", Without: "the temperature sensor's calibration: no temperature in hwmon",
		Registers: []string{"NV_PFUSE_FUSES_TEMP_CAL_OK"}, Outcome: Works, Kernels: []string{"6.1", "6.12", "7.2"}},
	{Name: "no-partitions", Without: "the number of framebuffer partitions",
		Registers: []string{"NV_PUNITS_DESIGN_PART_COUNT"}, Outcome: Dies,
		Symptom: divideError, Kernels: []string{"6.12"}},
	{Name: "no-gpcs", Without: "the number of GPCs",
		Registers: []string{"NV_PGRAPH_PRI_FECS_CFG"}, Outcome: Dies,
		Symptom: divideError, Kernels: []string{"6.12"}},
	{Name: "no-tpcs", Without: "the number of TPCs in each GPC",
		Registers: []string{"NV_PGRAPH_PRI_GPC_GPCCS_CFG"}, Outcome: Dies,
		Symptom: divideError, Kernels: []string{"6.12"}},
	{Name: "ce-no-memory", Without: "the size of the copy engines' memories",
		Registers: []string{"NV_PCE_FALCON_HWCFG"}, Outcome: Limps,
		Symptom: `ce[01]: ucode exceeds falcon limit`, Kernels: []string{"6.1"}},
	{Name: "ce-no-memory-on-demand", Without: "the size of the copy engines' memories",
		Registers: []string{"NV_PCE_FALCON_HWCFG"}, Outcome: Limps,
		Symptom: `ce[01]: ucode exceeds falcon limit`, Kernels: []string{"6.12", "7.2"},
		When: "a client allocates an object of class 90b5"},
	{Name: "pbdmas-unmasked", Without: "the mask that says how many PBDMAs there are: 32",
		Registers: []string{"NV_PMC_ENABLE_PBDMA"}, Outcome: Works, Kernels: []string{"6.1", "6.12", "7.2"}},
	{Name: "flush-plain", Without: "the flush of host writes: storage that reads back one",
		Registers: []string{"NV_UFLUSH_FB_FLUSH"}, Outcome: Works, Kernels: []string{"6.1", "6.12", "7.2"}},
	{Name: "power-mode-plain", Without: "the front end's answer to a power mode request",
		Registers: []string{"NV_PGRAPH_DISPATCH_PWR_MODE"}, Outcome: Limps,
		Symptom: timedOut, Kernels: []string{"6.12", "7.2"}},
	{Name: "clock-frozen", Without: "a running PTIMER",
		Registers: []string{"NV_PTIMER_TIME_0", "NV_PTIMER_TIME_1"}, Outcome: Limps,
		Symptom: `timer: stalled at`, Kernels: []string{"6.12", "7.2"}},
	{Name: "mmu-never-done", Without: "free slots and completion of TLB invalidation",
		Registers: []string{"NV_PFB_PRI_MMU_CTRL"}, Outcome: Dies,
		Symptom: timedOut, Kernels: []string{"6.12"}},
	{Name: "pmu-dead", Without: "the PMU's start",
		Registers: []string{"NV_PPWR_FALCON_CPUCTL"}, Outcome: Fails,
		Symptom: `pmu: init failed, -16`, Kernels: []string{"6.1", "6.12", "7.2"}},
	{Name: "fecs-dead", Without: "FECS's start: no graphics engine, the CPU moves buffers",
		Registers: []string{"NV_PGRAPH_PRI_FECS_FALCON_CPUCTL"}, Outcome: Limps,
		Symptom: `MM: using CPU for buffer copies`, Kernels: []string{"6.12", "7.2"}},
	{Name: "fecs-no-switch", Without: "FECS's answer to a context switch request",
		Registers: []string{"NV_PGRAPH_PRI_FECS_FALCON_IRQSSET"}, Outcome: Limps,
		Symptom: `gr: failed to construct context`, Kernels: []string{"6.12", "7.2"}},
}

// Apply leaves the behaviour out of a space. It stays out, also through resets, until the
// space is built again.
func (a Row) Apply(s *mmio.Space) error {
	for _, name := range a.Registers {
		if err := s.MakePlain(name, a.Value); err != nil {
			return fmt.Errorf("ablation %s: %w", a.Name, err)
		}
	}
	return nil
}
