package report

// Count is one thing that is counted while a phase runs.
type Count struct {
	Name  string
	Title string // of a column
	About string
	Time  bool // it is nanoseconds
	// Column says that tables have a column for it; the JSON has all.
	Column bool
}

// Names of the counts that this program works with.
const (
	Reads       = "reads"
	Writes      = "writes"
	Posted      = "posted"
	Messages    = "messages"
	Wakes       = "wakes"
	TrapNS      = "trap_ns"
	Doorbells   = "doorbells"
	Invalidates = "invalidates"
	Scans       = "scans"
	Examined    = "examined"
	Changed     = "changed"
	Rewritten   = "rewritten"
	ShadowNS    = "shadow_ns"
	HeldNS      = "held_ns"
	MapScans    = "map_scans"
	MapPages    = "map_pages_moved"
)

// Counts are all of them, in the order in which they are shown.
var Counts = []Count{
	{Reads, "reads", "trapped reads of any region", false, true},
	{Writes, "writes", "trapped writes of any region", false, true},
	{Posted, "posted", "writes for whose reply nobody waited", false, false},
	{Messages, "messages", "messages of the protocol, of any kind", false, false},
	{Wakes, "wakes", "times that the server found something in its socket: one message, or many behind each other", false, false},
	{TrapNS, "in traps", "time inside the device while it handles traps", true, true},
	{Doorbells, "bells", "doorbells that the aggregator took", false, true},
	{Invalidates, "inval", "TLB invalidates that the guest asked for", false, true},
	{Scans, "scans", "times that the shadow of an address space was brought up to date", false, true},
	{Examined, "examined", "guest page-table entries read for shadows", false, true},
	{Changed, "changed", "of these, entries found to have changed", false, true},
	{Rewritten, "rewritten", "shadow entries written", false, true},
	{ShadowNS, "in shadows", "time spent bringing shadows up to date", true, true},
	{HeldNS, "held", "time for which shadows waited for their rate, limits.table-rate", true, true},
	{MapScans, "map scans", "times that the tables of a mapped window were looked at", false, true},
	{MapPages, "pages moved", "pages that moved to or from a mapped window", false, true},
}
