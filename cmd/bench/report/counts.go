package report

// Count is one thing that is counted while a phase runs.
type Count struct {
	Name  string
	Title string // of a column
	About string
	Time  bool // it is nanoseconds
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
	{Reads, "reads", "trapped reads of any region", false},
	{Writes, "writes", "trapped writes of any region", false},
	{Posted, "posted", "writes for whose reply nobody waited", false},
	{Messages, "messages", "messages of the protocol, of any kind", false},
	{Wakes, "wakes", "times that the server found something in its socket: one message, or many behind each other", false},
	{TrapNS, "in traps", "time inside the device while it handles traps", true},
	{Doorbells, "bells", "doorbells that the aggregator took", false},
	{Invalidates, "inval", "TLB invalidates that the guest asked for", false},
	{Scans, "scans", "times that the shadow of an address space was brought up to date", false},
	{Examined, "examined", "guest page-table entries read for it", false},
	{Changed, "changed", "entries found to have changed", false},
	{Rewritten, "rewritten", "shadow entries written", false},
	{ShadowNS, "in shadows", "time spent bringing shadows up to date", true},
	{HeldNS, "held", "time for which shadows waited for their rate, limits.table-rate", true},
	{MapScans, "map scans", "times that the tables of a mapped window were looked at", false},
	{MapPages, "pages moved", "pages that moved to or from a mapped window", false},
}
