package shadow

import "sync/atomic"

// Stats counts the work for one guest's shadows. Any goroutine may read them. The tag count or
// rule is the name of a counter, and help describes it to users.
type Stats struct {
	Rebuilds         atomic.Uint64 `count:"rebuilds" help:"Shadows that were built from all tables of an address space, because it is new or shadow.scan is full."`
	Scans            atomic.Uint64 `count:"scans" help:"Updates of shadows; shadow.sync lazy makes fewer than flush."`
	LazyInvalidates  atomic.Uint64 `count:"lazy_invalidates" help:"TLB invalidates that were deferred until work that could see the change."`
	CardInvalidates  atomic.Uint64 `count:"card_invalidates" help:"TLB invalidates that the card executed for this guest."`
	EntriesExamined  atomic.Uint64 `count:"entries_examined" help:"Entries of the guest's page tables that were examined for its shadows; if this is far more than entries_changed, shadow.scan incremental examines fewer."`
	EntriesChanged   atomic.Uint64 `count:"entries_changed" help:"Examined entries that had changed."`
	EntriesRewritten atomic.Uint64 `count:"entries_rewritten" help:"Pages that were mapped, replaced or unmapped for the card."`
	BytesCompared    atomic.Uint64 `count:"bytes_compared" help:"Bytes of the guest's tables that were compared with their last content, because the guest can write them without a trap; a smaller bar-map compares fewer."`
	TableWork        atomic.Uint64 `count:"table_work" help:"Work on page tables in units of limits.table-rate; near that rate the guest has to wait, so raise the rate if the machine has time to spare."`
	ShadowTime       atomic.Int64  // ns spent on shadows; not in Counts
	ThrottleTime     atomic.Int64  // ns waited for the rate; not in Counts
	LostEntries      atomic.Uint64 `count:"lost_entries" help:"Page-table entries whose memory the client unmapped."`
	ForeignEntries   atomic.Uint64 `rule:"foreign_entries" help:"Page-table entries that name memory which is not the guest's; their shadows are not present."`
	ForeignTables    atomic.Uint64 `rule:"foreign_tables" help:"Page tables outside the guest's memory."`
	RefusedChanges   atomic.Uint64 `rule:"refused_changes" help:"Changes of address spaces that the card refused, such as of addresses that it keeps for itself; the guest lacks what they map."`
	TablesOverQuota  atomic.Uint64 `rule:"tables_over_quota" help:"Page tables beyond the memory of the GPU's tables or beyond the work of one scan; the guest lacks what they map, so raise tables."`
}
