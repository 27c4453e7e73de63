package main

import "unsafe"

func word32(p []byte, at uint64) *uint32 { return (*uint32)(unsafe.Pointer(&p[at])) }
