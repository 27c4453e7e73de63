package vfiouser

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// DMARule is a rule of a client's memory. The server refuses, counts and logs what breaks it.
type DMARule uint8

// The rules, with the option that says what they permit.
const (
	DMARegions  DMARule = iota // Options.MaxDMARegions
	DMAMappings                // Options.MaxDMAMappings
	DMAMemory                  // Options.MaxDMAMemory
	DMAFiles                   // Options.AnyDMAFile
	DMAAlloc                   // Options.MaxDMAAlloc
	numDMARules
)

var dmaRules = [numDMARules]struct {
	name, help, log string
	errno           unix.Errno
	limit           func(o *Options) uint64
}{
	// VFIO answers ENOSPC where its own entries are spent.
	DMARegions: {
		"dma_regions_refused", "Ranges of the client's memory beyond server.max-dma-regions; raise it, to 65535 at most.",
		"a range of the client's memory was refused: its DMA map has as many ranges as it may", unix.ENOSPC,
		func(o *Options) uint64 { return uint64(o.MaxDMARegions) },
	},
	DMAMappings: {
		"dma_mappings_refused", "Ranges of the client's memory beyond server.max-dma-mappings; raise it, or let QEMU use one memory backend.",
		"a range of the client's memory was refused: the client has as many mappings of this process as it may; give the machine fewer memory backends, or raise max-dma-mappings", unix.ENOSPC,
		func(o *Options) uint64 { return uint64(o.MaxDMAMappings) },
	},
	DMAMemory: {
		"dma_memory_refused", "Ranges of the client's memory beyond server.max-dma-memory; raise it.",
		"a range of the client's memory was refused: with it the client would take more of this process's addresses than it may; raise max-dma-memory", unix.ENOSPC,
		func(o *Options) uint64 { return o.MaxDMAMemory },
	},
	DMAFiles: {
		"dma_files_refused", "Ranges of the client's memory in a file that is neither a memfd nor in tmpfs or hugetlbfs; see server.dma-any-file.",
		"a range of the client's memory was refused: its file is neither a memfd nor in tmpfs or hugetlbfs, and a file system that does not answer would stop the card for all guests; " +
			"use -object memory-backend-memfd or a mem-path in /dev/shm, or set dma-any-file if you trust the client and its file systems", unix.EOPNOTSUPP,
		func(o *Options) uint64 { return 0 },
	},
	DMAAlloc: {
		"dma_alloc_refused", "Accesses of the GPU to pages that the client's memory did not have, beyond server.max-dma-alloc; raise it, or give QEMU's memory backend prealloc=on.",
		"an access to the client's memory failed: it needs a page that the client's file does not have, and the device has allocated as many as it may; raise max-dma-alloc, or give QEMU's memory backend prealloc=on", unix.ENOSPC,
		func(o *Options) uint64 { return o.MaxDMAAlloc },
	},
}

// DMARules returns all rules.
func DMARules() []DMARule {
	all := make([]DMARule, numDMARules)
	for i := range all {
		all[i] = DMARule(i)
	}
	return all
}

// String names the rule's counter, in logs and reports.
func (r DMARule) String() string { return dmaRules[r].name }

// Help describes the rule's counter to users.
func (r DMARule) Help() string { return dmaRules[r].help }

// refusal is the error of what breaks a rule.
type refusal DMARule

func (r refusal) Error() string { return "vfiouser: " + dmaRules[r].name }

// Unwrap returns what the client is told.
func (r refusal) Unwrap() error { return dmaRules[r].errno }

func (s *Server) refuse(r DMARule, attrs ...slog.Attr) {
	add(&s.stats.DMARefused[r], 1)
	attrs = append([]slog.Attr{slog.String("rule", r.String())}, attrs...)
	if most := dmaRules[r].limit(&s.opts); most > 0 {
		attrs = append(attrs, slog.Uint64("max", most))
	}
	s.warn(&s.logRules[r], dmaRules[r].log, attrs...)
}
