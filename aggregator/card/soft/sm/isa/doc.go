// Package isa is the instruction set of GF100's shader processors (sm_20) as data.
//
// A row describes one instruction form: the bits that identify it, the operation that it does,
// and a syntax line. The line names each modifier and operand in the order of the text, with the
// bits that hold it. From the rows come the decoder, the disassembler and the assembler; the
// text follows envydis. A bit that no field of a form covers is reserved: a word that sets one,
// or a field's value without a meaning, does not decode.
//
// Instructions are 64 bits long. If bit 3 of a word is set, its low half is an instruction of 32
// bits ("short form").
//
// The package owns no state but tables that are built once, and runs no goroutines.
package isa
