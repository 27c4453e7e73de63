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

// locksText are the helpers. They look through the list for each lane: a word is in it once at most.
const locksText = `
define i1 @lock(ptr %c, i32 %mask) #0 {
  %data = getelementptr i8, ptr %c, i64 $Context.Data
  %out = getelementptr i8, ptr %data, i64 $RegSize
  %head = load ptr at %c $Loop.Block
  %held = getelementptr i8, ptr %head, i64 $Block.Held
  %warp = load i32 at %c $Context.Warp
  %warp16 = trunc i32 %warp to i16
  br label %next
next:
  %m = phi i32 [ %mask, %0 ], [ %rest, %done ]
  %got = phi i32 [ 0, %0 ], [ %got1, %done ]
  %ended = icmp eq i32 %m, 0
  br i1 %ended, label %end, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %m, i1 true)
  %less = add i32 %m, -1
  %rest = and i32 %m, %less
  %at = getelementptr i32, ptr %data, i32 %l
  %addr = load i32, ptr %at
  %n = load i32 at %head $Block.Locks
  br label %look
look:
  %i = phi i32 [ 0, %lane ], [ %i1, %other ]
  %all = icmp uge i32 %i, %n
  br i1 %all, label %free, label %one
one:
  %i64 = zext i32 %i to i64
  %off = mul i64 %i64, $LockSize
  %entry = getelementptr i8, ptr %held, i64 %off
  %its = load i32 at %entry $Lock.Addr
  %same = icmp eq i32 %its, %addr
  br i1 %same, label %done, label %other
other:
  %i1 = add i32 %i, 1
  br label %look
free:
  %full = icmp uge i32 %n, $MaxLocks
  br i1 %full, label %done, label %take
take:
  %n64 = zext i32 %n to i64
  %nOff = mul i64 %n64, $LockSize
  %new = getelementptr i8, ptr %held, i64 %nOff
  store i32 %addr at %new $Lock.Addr
  %l16 = trunc i32 %l to i16
  store i16 %warp16 at %new $Lock.Warp
  store i16 %l16 at %new $Lock.Lane
  %n1 = add i32 %n, 1
  store i32 %n1 at %head $Block.Locks
  %bit = shl i32 1, %l
  %got2 = or i32 %got, %bit
  br label %done
done:
  %got1 = phi i32 [ %got2, %take ], [ %got, %free ], [ %got, %one ]
  br label %next
end:
  store i32 %got, ptr %out
  ret i1 true
}

define i1 @unlock(ptr %c, i32 %mask) #0 {
  %data = getelementptr i8, ptr %c, i64 $Context.Data
  %head = load ptr at %c $Loop.Block
  %held = getelementptr i8, ptr %head, i64 $Block.Held
  %warp = load i32 at %c $Context.Warp
  br label %next
next:
  %m = phi i32 [ %mask, %0 ], [ %rest, %look ], [ %rest, %drop ]
  %ended = icmp eq i32 %m, 0
  br i1 %ended, label %end, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %m, i1 true)
  %less = add i32 %m, -1
  %rest = and i32 %m, %less
  %at = getelementptr i32, ptr %data, i32 %l
  %addr = load i32, ptr %at
  br label %look
look:
  %i = phi i32 [ 0, %lane ], [ %i1, %other ]
  %n = load i32 at %head $Block.Locks
  %all = icmp uge i32 %i, %n
  br i1 %all, label %next, label %one
one:
  %i64 = zext i32 %i to i64
  %off = mul i64 %i64, $LockSize
  %entry = getelementptr i8, ptr %held, i64 %off
  %its = load i32 at %entry $Lock.Addr
  %itsWarp16 = load i16 at %entry $Lock.Warp
  %itsLane16 = load i16 at %entry $Lock.Lane
  %itsWarp = zext i16 %itsWarp16 to i32
  %itsLane = zext i16 %itsLane16 to i32
  %sameAddr = icmp eq i32 %its, %addr
  %sameWarp = icmp eq i32 %itsWarp, %warp
  %sameLane = icmp eq i32 %itsLane, %l
  %both = and i1 %sameAddr, %sameWarp
  %mine = and i1 %both, %sameLane
  br i1 %mine, label %drop, label %other
drop:
  %n1 = sub i32 %n, 1
  %n64 = zext i32 %n1 to i64
  %nOff = mul i64 %n64, $LockSize
  %lastAt = getelementptr i8, ptr %held, i64 %nOff
  %last = load i64, ptr %lastAt, align 4
  store i64 %last, ptr %entry, align 4
  store i32 %n1 at %head $Block.Locks
  br label %next
other:
  %i1 = add i32 %i, 1
  br label %look
end:
  ret i1 true
}
`
