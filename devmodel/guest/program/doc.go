// Package program makes random programs for a guest and predicts the memory after them.
//
// A [Program] is data: operations on numbered buffers, spaces and channels. [Gen] draws one
// with rapid; each operation is valid at its position. [Model] is the oracle: plain Go,
// page by page, with no table format and no GPU in it. [Run] runs a program on a guest and
// compares the results with the model. The same program can be run on any number of guests,
// in parallel or one operation at a time.
//
// Nothing here is shared between goroutines; a Runner belongs to its guest's.
package program
