package specflag

// Fields are the flags that set fields of a source's spec, by path.
var Fields = map[string]string{
	"display_name": "display-name", "labels": "label", "scope": "scope", "pool": "pool", "priority": "priority",
	"canonical_rules": "canonical-rules", "seeds": "seed", "first_crawl": "first-crawl", "lease_duration": "lease",
	"max_hold": "max-hold", "remember": "remember", "revisit_after": "revisit-after", "max_outstanding": "max-outstanding", "metadata": "metadata",
	"schedule.every": "every", "schedule.cron": "cron", "schedule.adaptive": "adaptive", "schedule.jitter": "jitter",
	"schedule.time_zone": "time-zone", "schedule.revisit": "revisit",
	"retry.max_attempts": "max-attempts", "retry.max_expirations": "max-expirations", "retry.max_throttled": "max-throttled",
	"retry.min_backoff": "min-backoff", "retry.max_backoff": "max-backoff",
	"follow.max_depth": "max-depth", "follow.allow_hosts": "follow-host", "follow.include": "include", "follow.exclude": "exclude",
}
