"""Deletions that leave too much, or too little."""

import fnmatch
import time
from dataclasses import replace

from faulty_stores.kept import Kept, mutant
from midturn.errors import Conflict, SessionDeleted


@mutant("test_a_deleted_session_leaves_only_a_head_that_says_so")
class DeleteKeepsTheRows(Kept):
    async def delete(self, session, *, data=b""):
        rows = self._rows.get(session, {})
        found = await super().delete(session, data=data)
        self._rows[session] = rows
        return found


@mutant("test_a_deleted_session_leaves_only_a_head_that_says_so", "test_a_deleted_session_is_listed_only_by_its_status")
class DeleteKeepsTheLabels(Kept):
    async def delete(self, session, *, data=b""):
        old = self._heads.get(session)
        found = await super().delete(session, data=data)
        if found:
            self._heads[session] = replace(self._heads[session], labels=old.labels)
        return found


@mutant("test_a_deleted_session_leaves_only_a_head_that_says_so")
class DeleteForgetsTheId(Kept):
    async def delete(self, session, *, data=b""):
        found = await super().delete(session, data=data)
        self._heads.pop(session, None)
        return found


@mutant("test_a_deleted_head_keeps_the_data_of_its_deletion")
class DeleteForgetsTheData(Kept):
    async def delete(self, session, *, data=b""):
        return await super().delete(session)


@mutant("test_a_deleted_session_leaves_only_a_head_that_says_so")
class DeleteKeepsTheData(Kept):
    async def delete(self, session, *, data=b""):
        old = self._heads.get(session)
        return await super().delete(session, data=data or (old.data if old else b""))


@mutant("test_deleting_again_finds_nothing_to_delete")
class DeletingAgainReplacesTheData(Kept):
    async def delete(self, session, *, data=b""):
        found = await super().delete(session, data=data)
        if session in self._heads:
            self._heads[session] = replace(self._heads[session], data=data)
        return found


@mutant("test_deleting_again_finds_nothing_to_delete", "test_another_handle_sees_a_deletion_at_once")
class DeletingTwiceCountsTwice(Kept):
    async def delete(self, session, *, data=b""):
        return await super().delete(session, data=data) or session in self._heads


@mutant("test_an_unknown_session_is_not_deleted_and_not_made")
class DeletingAnUnknownSessionMakesIt(Kept):
    async def delete(self, session, *, data=b""):
        if session not in self._heads:
            sample = next(iter(self._heads.values()), None)
            if sample:
                self._heads[session] = replace(sample, session=session).deleted(now=time.time())
        return await super().delete(session, data=data)


@mutant("test_a_held_session_is_deleted_all_the_same")
class AHeldSessionIsNotDeleted(Kept):
    async def delete(self, session, *, data=b""):
        head = self._heads.get(session)
        return False if head and head.expires > time.time() else await super().delete(session, data=data)


@mutant("test_only_the_named_session_is_deleted", "test_a_hostile_id_is_changed_and_deleted_alone")
class AnIdIsAPatternForDeletion(Kept):
    async def delete(self, session, *, data=b""):
        found = False
        for other in list(self._heads):
            found |= fnmatch.fnmatchcase(other, session) and await super().delete(other, data=data)
        return found or await super().delete(session, data=data)


@mutant("test_a_write_after_the_deletion_is_refused_whatever_its_seq")
class AWriteAfterDeleteIsAccepted(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status == "deleted" and write.seq == head.seq:
            self._heads[write.session] = replace(head, status="idle")
        return await super().write(write)


@mutant("test_a_write_after_the_deletion_is_refused_whatever_its_seq")
class ADeletedIdIsNewAgain(Kept):
    async def write(self, write):
        head = self._heads.get(write.session)
        if head and head.status == "deleted" and write.seq == 0:
            del self._heads[write.session]
        return await super().write(write)


@mutant(
    "test_a_write_after_the_deletion_is_refused_whatever_its_seq",
    "test_a_write_beside_a_deletion_is_before_it_or_refused",
)
class ALateWriteIsAConflict(Kept):
    async def write(self, write):
        try:
            return await super().write(write)
        except SessionDeleted:
            if self._heads[write.session].seq != write.seq:
                raise Conflict.of(write.session) from None
            raise
