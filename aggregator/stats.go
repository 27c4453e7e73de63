package aggregator

import (
	"cmp"
	"reflect"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
)

// GuestStats counts a guest's requests and their results. Any goroutine may read them. The tag
// count or rule is the name of a counter, and help describes it to users.
type GuestStats struct {
	Doorbells    atomic.Uint64 `count:"doorbells" help:"Times that the guest announced new work in a channel."`
	Binds        atomic.Uint64 `count:"binds" help:"Channels that the guest created and the card accepted."`
	Unbinds      atomic.Uint64 `count:"unbinds" help:"Channels that ended."`
	Runlists     atomic.Uint64 `count:"runlists" help:"Runlists that the guest committed."`
	Preempts     atomic.Uint64 `count:"preempts" help:"Requests of the guest to take a channel off the card."`
	Invalidates  atomic.Uint64 `count:"invalidates" help:"TLB invalidates that the guest requested."`
	Rebuilds     atomic.Uint64 `count:"rebuilds" help:"Shadows that were built from all tables of an address space, because it is new or shadow.scan is full."`
	EngineEvents atomic.Uint64 `count:"engine_events" help:"Completion events of engines that were delivered to the guest."`
	MMUFaults    atomic.Uint64 `count:"mmu_faults" help:"Accesses of channels to addresses without a page; the guest's log names the channel."`
	Runaways     atomic.Uint64 `count:"runaways" help:"Requests that ran longer than limits.request, so that their channel was ended; raise limits.request if the guest needs such work."`
	PBDMAErrors  atomic.Uint64 `count:"pbdma_errors" help:"Invalid pushbuffers or ring entries, and software methods, which a driver handles itself and which are harmless."`
	EngineErrors atomic.Uint64 `count:"engine_errors" help:"Methods that an engine refused, because the program uses a feature that this card does not have."`
	WindowFaults atomic.Uint64 `count:"window_faults" help:"Trapped accesses to a BAR at an address for which the guest's own tables have no page."`

	Scans            atomic.Uint64 `count:"scans" help:"Updates of shadows; shadow.sync lazy makes fewer than flush."`
	LazyInvalidates  atomic.Uint64 `count:"lazy_invalidates" help:"TLB invalidates that were deferred until work that could see the change."`
	CardInvalidates  atomic.Uint64 `count:"card_invalidates" help:"TLB invalidates that the card executed for this guest."`
	EntriesExamined  atomic.Uint64 `count:"entries_examined" help:"Entries of the guest's page tables that were examined for its shadows; if this is far more than entries_changed, shadow.scan incremental examines fewer."`
	EntriesChanged   atomic.Uint64 `count:"entries_changed" help:"Examined entries that had changed."`
	EntriesRewritten atomic.Uint64 `count:"entries_rewritten" help:"Entries of shadows that were written."`
	BytesCompared    atomic.Uint64 `count:"bytes_compared" help:"Bytes of the guest's tables that were compared with their last content, because the guest can write them without a trap; a smaller bar-map compares fewer."`
	TableWork        atomic.Uint64 `count:"table_work" help:"Work on page tables in units of limits.table-rate; near that rate the guest has to wait, so raise the rate if the machine has time to spare."`
	ShadowTime       atomic.Int64  // ns spent on shadows; not in Counts
	ThrottleTime     atomic.Int64  // ns waited for the rate; not in Counts
	LostEntries      atomic.Uint64 `count:"lost_entries" help:"Page-table entries whose memory the client unmapped."`
	Unmaps           atomic.Uint64 `count:"unmaps" help:"Ranges of memory that the client unmapped."`
	UnmapTime        atomic.Int64  // ns until the card no longer used them; not in Counts
	Quarantines      atomic.Uint64 `count:"quarantines" help:"Times that the guest was quarantined, so that nothing of it reached the card until a reset of its GPU; umbra gpu list shows the reason."`
	CardTimeout      atomic.Uint64 `count:"card_timeouts" help:"Card operations for this guest that timed out; on a busy machine add processors, on an idle one report a bug."`
	ScrubFailures    atomic.Uint64 `count:"scrub_failures" help:"Failures to clear the guest's memory after its client left, so that the GPU refuses clients until it succeeds; report a bug."`

	BadInstance     atomic.Uint64 `rule:"bad_instance" help:"Channels whose instance block is outside the guest's memory."`
	BadUSERD        atomic.Uint64 `rule:"bad_userd" help:"Channels whose USERD page is outside the guest's memory."`
	BadWindow       atomic.Uint64 `rule:"bad_window" help:"Accesses through PRAMIN outside the guest's memory, or settings that point a mapped PRAMIN there."`
	BadRunlist      atomic.Uint64 `rule:"bad_runlist" help:"Runlists outside the guest's memory, which count as empty."`
	BadPut          atomic.Uint64 `rule:"bad_put" help:"Doorbells with a GP_PUT outside its ring or moved back; only a scheduler checks this."`
	OverQuota       atomic.Uint64 `rule:"over_quota" help:"Channels that were refused, because the guest has too many, too little memory for their tables, or created too many in a second; raise channels, tables or limits.creations if it needs them."`
	ForeignEntries  atomic.Uint64 `rule:"foreign_entries" help:"Page-table entries that name memory which is not the guest's; their shadows are not present."`
	ForeignTables   atomic.Uint64 `rule:"foreign_tables" help:"Page tables outside the guest's memory."`
	TablesOverQuota atomic.Uint64 `rule:"tables_over_quota" help:"Page tables beyond the memory of the GPU's tables or beyond the work of one scan; the guest lacks what they map, so raise tables."`

	Mapped aperture.Stats // of what its clients may map
}

// A Count is one counter of a guest by its name.
type Count struct {
	Name string
	N    uint64
	Rule bool // it counts violations of a rule
	Help string
}

// Counts returns every counter in the order of GuestStats, without times.
func (s *GuestStats) Counts() (list []Count) {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if n, ok := v.Field(i).Addr().Interface().(*atomic.Uint64); ok {
			tag := v.Type().Field(i).Tag
			rule := tag.Get("rule")
			list = append(list, Count{cmp.Or(rule, tag.Get("count")), n.Load(), rule != "", tag.Get("help")})
		}
	}
	for _, c := range s.Mapped.Counts() {
		list = append(list, Count{Name: c.Name, N: c.N, Help: c.Help})
	}
	return list
}

// CountBadPut implements gate.Guest.
func (g *Guest) CountBadPut() { g.stats.BadPut.Add(1) }
