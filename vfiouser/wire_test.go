package vfiouser_test

import "encoding/binary"

var le = binary.LittleEndian
