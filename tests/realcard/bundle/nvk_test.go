package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// library is an ELF file with a build ID and, at the places of edits, what a build has there.
func library(t *testing.T, id string, b build) []byte {
	const note, end = 0x270, 0xa00000
	data := make([]byte, end)
	put := func(at int, digits string) {
		part, err := hex.DecodeString(digits)
		require.NoError(t, err)
		copy(data[at:], part)
	}
	for _, e := range b.edits {
		put(e.at, e.old)
	}
	put(note, "040000001400000003000000474e5500"+id)
	names := "\x00.note.gnu.build-id\x00.shstrtab\x00"
	var head, tail bytes.Buffer
	require.NoError(t, binary.Write(&head, binary.LittleEndian, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
		Shoff: end, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	}))
	copy(data, head.Bytes())
	require.NoError(t, binary.Write(&tail, binary.LittleEndian, []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_NOTE), Off: note, Size: 36},
		{Name: 20, Type: uint32(elf.SHT_STRTAB), Off: end + 3*64, Size: uint64(len(names))},
	}))
	return append(append(data, tail.Bytes()...), names...)
}

func TestMended(t *testing.T) {
	for id, b := range builds {
		data := library(t, id, b)
		got, err := mended(data)
		require.NoError(t, err, b.version)
		for _, e := range b.edits {
			require.Equal(t, e.new, hex.EncodeToString(got[e.at:e.at+len(e.new)/2]), "%s at %#x", b.version, e.at)
			copy(got[e.at:], data[e.at:e.at+len(e.old)/2])
		}
		require.True(t, bytes.Equal(data, got), "nothing else changes")

		e := b.edits[len(b.edits)-1]
		data[e.at]++
		_, err = mended(data)
		require.ErrorContains(t, err, "at 0x98 it does not have "+e.old+", which Debian's Mesa "+b.version)
	}
	_, err := mended(library(t, "00112233445566778899aabbccddeeff00112233", build{}))
	require.ErrorContains(t, err, `build ID "00112233445566778899aabbccddeeff00112233" of NVK is not known; want Debian's Mesa 26.1.6-1~bpo13+1 or 26.2.6-1`)
	_, err = mended(stub())
	require.ErrorContains(t, err, "no build ID")
}

// A folder of the cache has other links to the file.
func TestMendKeepsLinks(t *testing.T) {
	for id, b := range builds {
		dir := t.TempDir()
		file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
		data := library(t, id, b)
		require.NoError(t, os.WriteFile(file, data, 0o644))
		require.NoError(t, os.Link(file, link))
		require.NoError(t, mend(file))
		kept, err := os.ReadFile(link)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, kept))
		require.ErrorContains(t, mend(file), "MESA_OVER", "a mended one is another build")
	}
}

// A build that is not known is laid out as it is, with a warning.
func TestMendOrWarn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	data := library(t, "00112233445566778899aabbccddeeff00112233", build{})
	require.NoError(t, os.WriteFile(file, data, 0o644))
	var said strings.Builder
	require.NoError(t, mendOrWarn(file, &said))
	require.Contains(t, said.String(), "compute on Hopper needs the mended one")
	require.Contains(t, said.String(), "MESA_OVER")
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, kept))
	require.Error(t, mendOrWarn("/nowhere/file", &said))
}
