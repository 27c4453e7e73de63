// Package program makes random programs for a guest and knows what memory must
// look like after them.
//
// A [Program] is data: operations on numbered buffers, spaces and channels. [Gen]
// draws one with rapid; each operation makes sense where it stands. [Model] is the
// oracle: plain Go, page by page, with no table format and no GPU in it. [Run]
// does a program on a guest and holds what it finds against the model. The same
// program can be run on any number of guests, at once or one operation at a time.
//
// Nothing here is shared between goroutines; a Runner belongs to its guest's.
package program
