// Package push builds Fermi push buffers: command headers with their data, and
// the method numbers of the classes a guest program uses.
//
// A header word is op 31:29, count (or 13-bit immediate data) 28:16, subchannel
// 15:13, method/4 11:0. Method numbers here are byte addresses, as in NVIDIA's
// class headers (cl906f.h, cl9039.h, cl902d.h, cl9097.h, cl90c0.h) and, for the
// copy engines, as nouveau's microcode defines them, which is not cl90b5.h.
//
// A Buffer is not safe for use by several goroutines.
package push
