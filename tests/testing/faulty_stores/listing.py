"""Sessions that are listed wrongly."""

import fnmatch
import math
import re
from collections import Counter

from faulty_stores.kept import Kept, mutant
from midturn.record.head import by_change, read_cursor


class _Listed(Kept):
    """Lists by a rule of its own."""

    async def heads(self, *, after="", limit=100, prefix="", status=None, labels=None, order="id", reverse=False):
        if order == "updated" or reverse:
            filters = {"prefix": prefix, "status": status, "labels": labels or {}}
            return await super().heads(after=after, limit=limit, order=order, reverse=reverse, **filters)
        found = list(await super().heads(limit=10_000, status=status))
        found = [head for head in found if self.matches(head, prefix, labels or {}) and head.session > after]
        return self.cut(found, limit)

    def matches(self, head, prefix, labels):
        return head.session.startswith(prefix) and labels.items() <= head.labels.items()

    def cut(self, found, limit):
        return found[:limit]


@mutant("test_a_prefix_is_literal")
class ThePrefixIsALikePattern(_Listed):
    def matches(self, head, prefix, labels):
        pattern = re.escape(prefix).replace("%", ".*").replace("_", ".")
        return re.match(pattern, head.session, re.DOTALL) and super().matches(head, "", labels)


@mutant("test_a_prefix_is_literal")
class ThePrefixIsAGlob(_Listed):
    def matches(self, head, prefix, labels):
        return fnmatch.fnmatchcase(head.session, prefix + "*") and super().matches(head, "", labels)


@mutant("test_a_prefix_is_literal")
class ThePrefixIsCaseBlind(_Listed):
    def matches(self, head, prefix, labels):
        return head.session.lower().startswith(prefix.lower()) and super().matches(head, "", labels)


@mutant("test_a_prefix_is_literal", "test_a_prefix_is_paged_too")
class ThePrefixEndsBeforeTheLastCharacter(_Listed):
    def matches(self, head, prefix, labels):
        return (not prefix or prefix <= head.session < prefix + "\U0010ffff") and super().matches(head, "", labels)


@mutant("test_every_label_asked_for_must_match")
class AnyLabelMatches(_Listed):
    def matches(self, head, prefix, labels):
        some = not labels or labels.items() & head.labels.items()
        return some and super().matches(head, prefix, {})


@mutant("test_many_labels_on_one_session")
class OnlyTheFirstLabelMatches(_Listed):
    def matches(self, head, prefix, labels):
        return super().matches(head, prefix, dict(list(labels.items())[:1]))


@mutant("test_a_label_matches_by_its_exact_key_and_value")
class LabelsMatchByTheirValue(_Listed):
    def matches(self, head, prefix, labels):
        return set(labels.values()) <= set(head.labels.values()) and super().matches(head, prefix, {})


@mutant("test_a_label_matches_by_its_exact_key_and_value")
class LabelsAreJoinedByAnEqualsSign(_Listed):
    def matches(self, head, prefix, labels):
        joined = {f"{key}={value}" for key, value in head.labels.items()}
        return {f"{key}={value}" for key, value in labels.items()} <= joined and super().matches(head, prefix, {})


@mutant("test_a_label_matches_by_its_exact_key_and_value", "test_every_label_asked_for_must_match")
class AnEmptyLabelMatchesAMissingOne(_Listed):
    def matches(self, head, prefix, labels):
        return all(head.labels.get(key, "") == value for key, value in labels.items()) and super().matches(
            head, prefix, {}
        )


@mutant("test_filters_follow_the_newest_write")
class LabelsOfOldWritesMatch(_Listed):
    def __init__(self, where):
        super().__init__(where)
        self.seen = {}

    async def write(self, write):
        head = await super().write(write)
        self.seen.setdefault(write.session, set()).update(write.labels.items())
        return head

    def matches(self, head, prefix, labels):
        return labels.items() <= self.seen[head.session] and super().matches(head, prefix, {})


@mutant("test_a_page_has_a_hundred_sessions_unless_told_otherwise", "test_pages_cover_every_session_once_in_order")
class ThePageHasOneMore(_Listed):
    def cut(self, found, limit):
        return found[: limit + 1]


@mutant("test_a_page_has_a_hundred_sessions_unless_told_otherwise")
class ThePageEndsEarly(_Listed):
    def cut(self, found, limit):
        return found[: min(limit, 50)]


@mutant("test_sessions_are_listed_by_code_point_not_by_a_language")
class ListedInTheOrderOfUtf16(_Listed):
    def cut(self, found, limit):
        return sorted(found, key=lambda head: head.session.encode("utf-16-be"))[:limit]


@mutant("test_sessions_are_listed_by_code_point_not_by_a_language")
class ListedCaseBlind(_Listed):
    def cut(self, found, limit):
        return sorted(found, key=lambda head: head.session.lower())[:limit]


@mutant("test_a_page_has_a_hundred_sessions_unless_told_otherwise")
class ListedNewestFirst(_Listed):
    def cut(self, found, limit):
        return sorted(found, key=lambda head: -head.updated)[:limit]


@mutant("test_filters_work_together_and_the_limit_counts_what_matches")
class TheLimitCountsWhatDoesNotMatch(Kept):
    async def heads(self, *, labels=None, **filters):
        if filters.get("order") == "updated":
            return await super().heads(labels=labels or {}, **filters)
        found = await super().heads(**filters)
        return [head for head in found if (labels or {}).items() <= head.labels.items()]


@mutant("test_a_page_starts_after_an_id_whether_it_exists_or_not")
class AfterIncludesTheId(Kept):
    async def heads(self, *, after="", **filters):
        found = list(await super().heads(after=after, **filters))
        head = None if filters.get("reverse") else self._heads.get(after)
        return [head, *found][: filters.get("limit", 100)] if head and head.status != "deleted" else found


@mutant("test_a_status_is_listed_alone_and_deleted_only_when_asked_for")
class DeletedAreListedToo(Kept):
    async def heads(self, *, status=None, **filters):
        found = list(await super().heads(status=status, **filters))
        if status is None and not filters.get("reverse"):
            found += await super().heads(status="deleted", **filters)
            return sorted(found, key=lambda head: head.session)
        return found


@mutant("test_a_status_is_listed_alone_and_deleted_only_when_asked_for")
class DeletedAreNeverListed(Kept):
    async def heads(self, *, status=None, **filters):
        return [] if status == "deleted" else await super().heads(status=status, **filters)


@mutant("test_a_status_is_listed_alone_and_deleted_only_when_asked_for")
class TheStatusIsIgnored(Kept):
    async def heads(self, *, status=None, **filters):
        ignored = status != "deleted" and not filters.get("reverse")
        return await super().heads(status=None if ignored else status, **filters)


class _ByChange(Kept):
    """Lists the last change first by a rule of its own."""

    async def heads(self, *, after="", limit=100, order="id", **filters):
        if order == "id" or filters.get("reverse"):
            return await super().heads(after=after, limit=limit, order=order, **filters)
        found = await super().heads(limit=10_000, **filters)
        start = read_cursor(after)
        return sorted((head for head in found if self.behind(head, start)), key=self.place, reverse=True)[:limit]

    def behind(self, head, start):
        return by_change(head) < start

    def place(self, head):
        return by_change(head)


@mutant(
    "test_the_last_change_comes_first_page_by_page",
    "test_a_change_between_two_pages_lists_no_other_session_twice",
    "test_the_last_change_comes_first_with_filters_too",
)
class TheOrderIsAlwaysThatOfIds(_ByChange):
    def place(self, head):
        return head.session


@mutant(
    "test_the_last_change_comes_first_page_by_page",
    "test_a_change_between_two_pages_lists_no_other_session_twice",
    "test_the_last_change_comes_first_with_filters_too",
)
class TheOldestComesFirst(_ByChange):
    def place(self, head):
        return -head.updated, head.session


@mutant("test_of_equal_changes_the_greater_id_comes_first")
class EqualChangesAreLeftOutOfTheNextPage(_ByChange):
    def behind(self, head, start):
        return head.updated < start[0]


@mutant("test_the_greatest_id_comes_first_in_reverse")
class ReverseTurnsEachPageRound(Kept):
    async def heads(self, *, order="id", reverse=False, **filters):
        if order == "updated":
            return await super().heads(order=order, reverse=reverse, **filters)
        found = list(await super().heads(**filters))
        return found[::-1] if reverse else found


@mutant("test_the_greatest_id_comes_first_in_reverse")
class ReverseBeginsAfterTheGreatestIdOfThePrefix(Kept):
    async def heads(self, *, after="", prefix="", order="id", reverse=False, **filters):
        skips = order == "id" and reverse and not after and prefix
        found = await super().heads(after=after, prefix=prefix, order=order, reverse=reverse, **filters)
        return found[1:] if skips else found


@mutant(
    "test_the_oldest_change_comes_first_in_reverse",
    "test_of_equal_changes_the_smaller_id_comes_first_in_reverse",
    "test_a_change_between_two_pages_is_not_missed_in_reverse",
)
class ReverseIsIgnoredForChanges(Kept):
    async def heads(self, *, order="id", reverse=False, **filters):
        return await super().heads(order=order, reverse=reverse and order == "id", **filters)


class _OldestFirst(Kept):
    """Lists the oldest change first by a rule of its own."""

    async def heads(self, *, after="", limit=100, order="id", reverse=False, **filters):
        if order == "id" or not reverse:
            return await super().heads(after=after, limit=limit, order=order, reverse=reverse, **filters)
        start = read_cursor(after, reverse=True)
        found = [head for head in await super().heads(limit=10_000, **filters) if self.behind(head, start)]
        return sorted(found, key=by_change)[:limit]


@mutant("test_of_equal_changes_the_smaller_id_comes_first_in_reverse")
class EqualChangesAreLeftOutInReverse(_OldestFirst):
    def behind(self, head, start):
        return head.updated > start[0]


@mutant("test_a_change_between_two_pages_is_not_missed_in_reverse")
class WhatChangedSinceThePageIsLeftOutInReverse(_OldestFirst):
    def __init__(self, where):
        super().__init__(where)
        self.began = math.inf

    async def heads(self, *, after="", order="id", reverse=False, **filters):
        if order == "updated" and reverse and not after:
            self.began = max((head.updated for head in self._heads.values()), default=math.inf)
        return await super().heads(after=after, order=order, reverse=reverse, **filters)

    def behind(self, head, start):
        return start < by_change(head) and head.updated <= self.began


@mutant("test_every_status_is_counted_deleted_too")
class DeletedAreNotCounted(Kept):
    async def counts(self):
        return {status: count for status, count in (await super().counts()).items() if status != "deleted"}


@mutant("test_every_status_is_counted_deleted_too")
class TheFirstStatusIsCounted(Kept):
    def __init__(self, where):
        super().__init__(where)
        self.first = {}

    async def write(self, write):
        head = await super().write(write)
        self.first.setdefault(write.session, write.status)
        return head

    async def counts(self):
        return Counter(
            head.status if head.status == "deleted" else self.first.get(session, head.status)
            for session, head in self._heads.items()
        )


@mutant("test_a_new_store_lists_nothing", "test_an_unknown_session_has_no_head_and_no_rows")
class ANewStoreHasASession(Kept):
    async def heads(self, **filters):
        found = await super().heads(**filters)
        return found or ([None] if filters.get("order", "id") == "id" else [])
