package ceto.library;

import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.mapper.annotations.DaoFactory;
import com.datastax.oss.driver.api.mapper.annotations.DaoKeyspace;
import com.datastax.oss.driver.api.mapper.annotations.Mapper;

/** The way to both. */
@Mapper
public interface LibraryMapper {
  @DaoFactory
  BookDao books(@DaoKeyspace CqlIdentifier keyspace);

  @DaoFactory
  ReadsDao reads(@DaoKeyspace CqlIdentifier keyspace);
}
