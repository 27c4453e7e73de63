package compile

// Locks of words of shared memory are a list in the block, as package interp has it. Lanes take and drop
// them one after the other.

// Lock takes the locks of words at addresses of 32 bits, and returns in which lanes that went well.
func (b *Builder) Lock(addr *Value) *Value {
	out := &Value{Kind: Kind{Shape: Vector, Max: 1}, width: 1}
	b.lockHelper("lock", addr)
	if b.emit && !b.t.kernel {
		out.mask = b.fromContext("i32", "Data", 4*Lanes)
	}
	return out
}

// Unlock drops locks that the lane holds.
func (b *Builder) Unlock(addr *Value) { b.lockHelper("unlock", addr) }

func (b *Builder) lockHelper(name string, addr *Value) {
	if b.t.kernel {
		b.Refuse("locks")
		return
	}
	at := b.And(addr, b.Const(windowMask&^3))
	if b.emit {
		b.toContext("<32 x i32>", b.vector(at), "Data", 0)
		b.helper(name)
	}
}

// noLocks is the condition that no lane of the block holds a lock.
func (b *Builder) noLocks() string {
	head := b.fromContext("ptr", "Loop", int(fieldOf[Loop]("Block")))
	n := b.line("load i32, ptr %s", b.line("getelementptr i8, ptr %s, i64 %s", head, expand("$Block.Locks")))
	return b.line("icmp eq i32 %s, 0", n)
}

// locksText are the helpers. A word is in the list once at most: a lane gets its lock if no entry from before has the word, and no
// lane before it. Warps drop locks in the order in which they took them, so that the next one is behind the last one that was
// dropped, or at the end. An entry, a state.Lock, is one word of 64 bits.
const locksText = `
define i1 @lock(ptr %c, i32 %mask) #0 {
  %data = getelementptr i8, ptr %c, i64 $Context.Data
  %out = getelementptr i8, ptr %data, i64 $RegSize
  %head = load ptr at %c $Loop.Block
  %held = getelementptr i8, ptr %head, i64 $Block.Held
  %warp = load i32 at %c $Context.Warp
  %old = load i32 at %head $Block.Locks
  %words = load <32 x i32>, ptr %data, align 4
  br label %next
next:
  %m = phi i32 [ %mask, %0 ], [ %rest, %done ]
  %got = phi i32 [ 0, %0 ], [ %got1, %done ]
  %n = phi i32 [ %old, %0 ], [ %n1, %done ]
  %ended = icmp eq i32 %m, 0
  br i1 %ended, label %end, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %m, i1 true)
  %less = add i32 %m, -1
  %rest = and i32 %m, %less
  %at = getelementptr i32, ptr %data, i32 %l
  %addr = load i32, ptr %at
  %full = icmp uge i32 %n, $MaxLocks
  br i1 %full, label %done, label %look
look:
  %i = phi i32 [ 0, %lane ], [ %i1, %one ]
  %all = icmp uge i32 %i, %old
  br i1 %all, label %free, label %one
one:
  %i64 = zext i32 %i to i64
  %entry = getelementptr i64, ptr %held, i64 %i64
  %its = load i32 at %entry $Lock.Addr
  %same = icmp eq i32 %its, %addr
  %i1 = add i32 %i, 1
  br i1 %same, label %done, label %look
free:
  %addr0 = insertelement <32 x i32> poison, i32 %addr, i32 0
  %addrs = shufflevector <32 x i32> %addr0, <32 x i32> poison, <32 x i32> zeroinitializer
  %equal = icmp eq <32 x i32> %words, %addrs
  %equals = bitcast <32 x i1> %equal to i32
  %bit = shl i32 1, %l
  %below = add i32 %bit, -1
  %others = and i32 %equals, %mask
  %before = and i32 %others, %below
  %first = icmp eq i32 %before, 0
  %n64 = zext i32 %n to i64
  %new = getelementptr i64, ptr %held, i64 %n64
  %key = call i64 @held(i32 %addr, i32 %warp, i32 %l)
  store i64 %key, ptr %new, align 4
  %more = zext i1 %first to i32
  %n2 = add i32 %n, %more
  %its1 = select i1 %first, i32 %bit, i32 0
  %got2 = or i32 %got, %its1
  br label %done
done:
  %got1 = phi i32 [ %got2, %free ], [ %got, %lane ], [ %got, %one ]
  %n1 = phi i32 [ %n2, %free ], [ %n, %lane ], [ %n, %one ]
  br label %next
end:
  store i32 %n at %head $Block.Locks
  store i32 %got, ptr %out
  ret i1 true
}

define internal i64 @held(i32 %addr, i32 %warp, i32 %lane) alwaysinline {
  %a = zext i32 %addr to i64
  %w = zext i32 %warp to i64
  %l = zext i32 %lane to i64
  %w1 = shl i64 %w, 32
  %l1 = shl i64 %l, 48
  %wl = or i64 %w1, %l1
  %key = or i64 %a, %wl
  ret i64 %key
}

define i1 @unlock(ptr %c, i32 %mask) #0 {
  %data = getelementptr i8, ptr %c, i64 $Context.Data
  %head = load ptr at %c $Loop.Block
  %held = getelementptr i8, ptr %head, i64 $Block.Held
  %warp = load i32 at %c $Context.Warp
  %n0 = load i32 at %head $Block.Locks
  br label %next
next:
  %m = phi i32 [ %mask, %0 ], [ %rest, %look ], [ %rest, %drop ]
  %n = phi i32 [ %n0, %0 ], [ %n, %look ], [ %last, %drop ]
  %guess = phi i32 [ 0, %0 ], [ %guess, %look ], [ %after, %drop ]
  %lanes = icmp ne i32 %m, 0
  %some = icmp ne i32 %n, 0
  %go = and i1 %lanes, %some
  br i1 %go, label %lane, label %end
lane:
  %l = call i32 @llvm.cttz.i32(i32 %m, i1 true)
  %less = add i32 %m, -1
  %rest = and i32 %m, %less
  %at = getelementptr i32, ptr %data, i32 %l
  %addr = load i32, ptr %at
  %key = call i64 @held(i32 %addr, i32 %warp, i32 %l)
  %last = add i32 %n, -1
  %g = call i32 @llvm.umin.i32(i32 %guess, i32 %last)
  %g64 = zext i32 %g to i64
  %gAt = getelementptr i64, ptr %held, i64 %g64
  %guessed = load i64, ptr %gAt, align 4
  %right = icmp eq i64 %guessed, %key
  br i1 %right, label %drop, label %look
look:
  %i = phi i32 [ 0, %lane ], [ %i1, %one ]
  %all = icmp uge i32 %i, %n
  br i1 %all, label %next, label %one
one:
  %i64 = zext i32 %i to i64
  %entry = getelementptr i64, ptr %held, i64 %i64
  %its = load i64, ptr %entry, align 4
  %mine = icmp eq i64 %its, %key
  %i1 = add i32 %i, 1
  br i1 %mine, label %drop, label %look
drop:
  %d = phi i32 [ %g, %lane ], [ %i, %one ]
  %d64 = zext i32 %d to i64
  %gone = getelementptr i64, ptr %held, i64 %d64
  %last64 = zext i32 %last to i64
  %lastAt = getelementptr i64, ptr %held, i64 %last64
  %moved = load i64, ptr %lastAt, align 4
  store i64 %moved, ptr %gone, align 4
  %after = add i32 %d, 1
  br label %next
end:
  store i32 %n at %head $Block.Locks
  ret i1 true
}
`
