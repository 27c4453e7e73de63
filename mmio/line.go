package mmio

// Line is the state of a function's interrupt.
type Line struct {
	Level    bool // something is pending and enabled
	Edge     bool // the level rose, or a message has to be sent again
	MSI      bool // the driver wants messages, one for each edge; else the pin follows the level
	Disabled bool // the driver has switched the pin off
}
