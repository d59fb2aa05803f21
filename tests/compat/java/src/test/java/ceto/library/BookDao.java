package ceto.library;

import com.datastax.oss.driver.api.core.MappedAsyncPagingIterable;
import com.datastax.oss.driver.api.core.PagingIterable;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.BoundStatementBuilder;
import com.datastax.oss.driver.api.mapper.annotations.Dao;
import com.datastax.oss.driver.api.mapper.annotations.Delete;
import com.datastax.oss.driver.api.mapper.annotations.Insert;
import com.datastax.oss.driver.api.mapper.annotations.Query;
import com.datastax.oss.driver.api.mapper.annotations.Select;
import com.datastax.oss.driver.api.mapper.annotations.Update;
import com.datastax.oss.driver.api.mapper.entity.saving.NullSavingStrategy;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.function.UnaryOperator;

/** What the application does with books. */
@Dao
public interface BookDao {
  @Insert
  void save(Book book);

  @Insert
  BoundStatement toSave(Book book);

  @Insert(ttl = "1000", timestamp = ":at")
  void saveForAWhile(Book book, long at);

  @Insert(ifNotExists = true)
  boolean saveIfAbsent(Book book);

  @Insert(nullSavingStrategy = NullSavingStrategy.DO_NOT_SET)
  void saveWhatIsSet(Book book);

  @Select
  Book find(String shelf, int place);

  @Select(customWhereClause = "shelf = :shelf AND place >= :first", orderBy = "place DESC", limit = ":most")
  PagingIterable<Book> findFrom(String shelf, int first, int most);

  @Select
  CompletionStage<MappedAsyncPagingIterable<Book>> findShelf(String shelf, UnaryOperator<BoundStatementBuilder> how);

  @Query("SELECT count(*) FROM ${keyspaceId}.book WHERE shelf IN :shelves")
  long count(List<String> shelves);

  @Query("UPDATE ${keyspaceId}.book SET chapters = chapters + :chapters WHERE shelf = :shelf AND place = :place")
  void append(List<String> chapters, String shelf, int place);

  @Update(customIfClause = "title = :before")
  boolean updateIf(Book book, String before);

  @Delete(ifExists = true)
  boolean delete(Book book);

  @Delete(entityClass = Book.class, customWhereClause = "shelf = :shelf")
  void deleteShelf(String shelf);
}
