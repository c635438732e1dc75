package memstore

import (
	"fmt"

	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// op is the number of a kind of command in the journal. Numbers are never used again for another kind.
type op uint8

const (
	opClaim op = iota + 1
	opPolls
	opMark
	opEndSession
	opGiveBack
	opRenew
	opApply
	opRequestCancel
	opExpired
	opSubmit
	opPushSource
	opDropTasks
	opCountFiltered
	opSyncRules
	opUnblock
	opPutRule
	opPutHolds
	opStart
	opPutSource
	opRemoveSource
	opPutCollector
	opForgetCollectors
	opByHand
	opImport
	opBind
	opRelease
	opAudit
)

// kinds have the name of each kind of command, and make an empty one to read.
var kinds = [...]struct {
	name string
	make func() command
}{
	opClaim:            {"claim", func() command { return new(claimCommand) }},
	opPolls:            {"polls", func() command { return new(pollsCommand) }},
	opMark:             {"mark", func() command { return new(markCommand) }},
	opEndSession:       {"end session", func() command { return new(endSessionCommand) }},
	opGiveBack:         {"give back", func() command { return new(giveBackCommand) }},
	opRenew:            {"renew", func() command { return new(renewCommand) }},
	opApply:            {"apply", func() command { return new(applyCommand) }},
	opRequestCancel:    {"request cancel", func() command { return new(cancelCommand) }},
	opExpired:          {"expired", func() command { return new(expiredCommand) }},
	opSubmit:           {"submit", func() command { return new(submitCommand) }},
	opPushSource:       {"push source", func() command { return new(pushCommand) }},
	opDropTasks:        {"drop tasks", func() command { return new(dropCommand) }},
	opCountFiltered:    {"count filtered", func() command { return new(filteredCommand) }},
	opSyncRules:        {"sync rules", func() command { return new(syncCommand) }},
	opUnblock:          {"unblock", func() command { return new(unblockCommand) }},
	opPutRule:          {"put rule", func() command { return new(ruleCommand) }},
	opPutHolds:         {"put holds", func() command { return new(holdsCommand) }},
	opStart:            {"start", func() command { return new(startCommand) }},
	opPutSource:        {"put source", func() command { return new(putSourceCommand) }},
	opRemoveSource:     {"remove source", func() command { return new(removeSourceCommand) }},
	opPutCollector:     {"put collector", func() command { return new(putCollectorCommand) }},
	opForgetCollectors: {"forget collectors", func() command { return new(forgetCommand) }},
	opByHand:           {"by hand", func() command { return new(handCommand) }},
	opImport:           {"import", func() command { return new(importCommand) }},
	opBind:             {"bind", func() command { return new(bindCommand) }},
	opRelease:          {"release", func() command { return new(releaseCommand) }},
	opAudit:            {"audit", func() command { return new(auditCommand) }},
}

func (o op) String() string {
	if int(o) < len(kinds) && kinds[o].make != nil {
		return kinds[o].name
	}
	return fmt.Sprintf("%d", uint8(o))
}

// decodeCommand reads the inputs of a command.
func decodeCommand(o op, inputs []byte) (command, error) {
	if int(o) >= len(kinds) || kinds[o].make == nil {
		return nil, fmt.Errorf("there is no command %d", o)
	}
	c := kinds[o].make()
	r := codec.Reader(inputs)
	c.inputs(r)
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("command %s: %w", o, err)
	}
	return c, nil
}

// grows reports whether a command adds data.
func grows(c command) bool {
	switch c := c.(type) {
	case *claimCommand, *submitCommand, *ruleCommand, *importCommand:
		return true
	case *putSourceCommand:
		return c.grows && !c.k.deleted
	default:
		return false
	}
}

// shardCommand changes one shard.
type shardCommand interface {
	command
	run(s *shard)
}

// storeCommand changes all shards at once.
type storeCommand interface {
	command
	runAll(s *Store)
}

// sourceCommand changes the sources as people wrote them.
type sourceCommand interface {
	command
	run(b *sourceBook)
}

// collectorCommand changes what is known of collectors.
type collectorCommand interface {
	command
	run(b *collectorBook)
}

// noResults is part of commands without results that could differ.
type noResults struct{}

func (noResults) results(*checksum) {}
